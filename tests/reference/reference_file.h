// SPDX-License-Identifier: Apache-2.0
/* Reads a safetensors file of reference numbers (tests/reference/data/README.md names the tensors).
 *
 * Test code: a file that is absent or malformed, a name that is not there and a wrong type print
 * what is wrong and abort; there are no diagnostics. Strict: header length, names, types, shapes
 * and offsets must agree, and the tensors must cover the data exactly, without holes or overlap.
 * Format: https://github.com/huggingface/safetensors#format. Little-endian hosts only, as all of
 * ours are. */
#ifndef TSR_TESTS_REFERENCE_FILE_H
#define TSR_TESTS_REFERENCE_FILE_H
#include <stdbool.h>
#include <stdint.h>

enum { TSR_REFERENCE_DIMS_MAX = 4 };

typedef struct tsr_reference tsr_reference;

tsr_reference *tsr_reference_open(const char *path);
/* Frees it with all that it returned. */
void tsr_reference_close(tsr_reference *ref);

/* The tensors in the order of the file's header: by type, then by name. */
int tsr_reference_count(const tsr_reference *ref);
const char *tsr_reference_name(const tsr_reference *ref, int i);
bool tsr_reference_has(const tsr_reference *ref, const char *name);
int64_t tsr_reference_elements(const tsr_reference *ref, const char *name);

/* A tensor's numbers, row-major, owned by `ref`. `ret_ndim` and `ret_shape` may be NULL. The i32
 * form is a copy of an I64 tensor (tokens, targets) whose numbers must fit. */
const float *tsr_reference_f32(
    const tsr_reference *ref, const char *name, int *ret_ndim,
    int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]);
const int64_t *tsr_reference_i64(
    const tsr_reference *ref, const char *name, int *ret_ndim,
    int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]);
const int32_t *tsr_reference_i32(
    tsr_reference *ref, const char *name, int *ret_ndim, int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]);

#endif
