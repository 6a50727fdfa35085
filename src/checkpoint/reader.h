// SPDX-License-Identifier: Apache-2.0
/* Reading a committed checkpoint: any slice of any tensor, with the files' lengths and hashes
 * verified, in constant memory. */
#ifndef TSR_CHECKPOINT_READER_H
#define TSR_CHECKPOINT_READER_H
#include "runtime/process.h"
#include "checkpoint/manifest.h"
#include "kernels/kernels.h"

typedef struct tsr_checkpoint_reader tsr_checkpoint_reader;

/* Opens all files that the manifest names and compares their lengths; with `verify` also the hashes
 * of what stands before the tensors. Errors name file, length found and expected. */
bool tsr_checkpoint_reader_open(
    tsr_arena *arena, const tsr_manifest *manifest, bool verify, tsr_checkpoint_reader **ret_input,
    tsr_diags *diags);
/* That the files without tensors, which other readers parse, are what was written: regular files,
 * their lengths, their hashes. Errors as of tsr_checkpoint_reader_open. */
bool tsr_checkpoint_reader_check_sides(
    tsr_arena *arena, const tsr_manifest *manifest, tsr_diags *diags);
void tsr_checkpoint_reader_close(tsr_checkpoint_reader *input);

/* One tensor's elements as they stand in a piece, in portions: `first` counts over the piece's
 * elements, row-major. */
typedef void tsr_checkpoint_reader_portion(
    void *context, const tsr_stored_piece *piece, int64_t first, int64_t count,
    const void *elements);

/* Hands on every piece of the tensor for which `wanted` (NULL: all) is true, and compares its hash
 * if the input was opened to be verified. Errors: file, tensor and offset; what was handed on is
 * then not to be used. */
bool tsr_checkpoint_reader_read(
    tsr_checkpoint_reader *input, const tsr_stored *tensor,
    bool (*wanted)(void *context, const tsr_stored_piece *piece),
    tsr_checkpoint_reader_portion *portion, void *context, tsr_diags *diags);

/* Elements [first, first + count) of a slice of the tensor, row-major in the slice, as they are
 * stored; without a look at hashes. */
bool tsr_checkpoint_reader_read_slice(
    tsr_checkpoint_reader *input, const tsr_stored *tensor, const int64_t *begin,
    const int64_t *shape, int64_t first, int64_t count, void *ret_elements, tsr_diags *diags);

/* Every byte of every file, against its hash. All that differ are named. */
bool tsr_checkpoint_reader_verify(tsr_checkpoint_reader *input, tsr_diags *diags);

/* Copies what a portion and a rank's part have in common into the part's memory, which has `dtype`;
 * elements become the nearest of that. */
void tsr_portion_copy(
    const tsr_kernels *kernels, const tsr_stored *tensor, const tsr_stored_piece *piece,
    int64_t first, int64_t count, const void *elements, tsr_dtype dtype,
    const tsr_part_of_value *part);

#endif
