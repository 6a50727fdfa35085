// SPDX-License-Identifier: Apache-2.0
/* safetensors files (https://github.com/huggingface/safetensors, "Format"): a little-endian u64 N,
 * N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": …},
 * then the tensors' bytes, row-major and little-endian. */
#ifndef TSR_CHECKPOINT_SAFETENSORS_H
#define TSR_CHECKPOINT_SAFETENSORS_H
#include "base/diag.h"
#include "base/text.h"
#include <stdint.h>

enum { TSR_SAFETENSORS_DIMS_MAX = 8, TSR_SAFETENSORS_HEADER_MAX = 100000000 };

typedef struct {
  const char *name;
  const char *dtype; /* as the format writes it: "F32", "BF16", "F16", "I64", … */
  int ndim;          /* 0: a scalar */
  int64_t shape[TSR_SAFETENSORS_DIMS_MAX];
  int64_t offset, bytes; /* of the data, from the file's first byte */
} tsr_safetensor;

typedef struct {
  const char *path;
  const char *map; /* the whole file, read-only; NULL: closed */
  int64_t size;
  tsr_safetensor *tensors; /* by rising offset, those of no bytes by name */
  int tensors_count;
  int *by_name;          /* indexes into `tensors`, by rising name */
  const char **metadata; /* key, value, key, value, … as the file has them */
  int metadata_count;    /* pairs */
} tsr_safetensors;

/* Maps a file and checks its header by the format: 8 + N within the file and N at most
 * TSR_SAFETENSORS_HEADER_MAX, strict JSON that begins with '{' and is padded by blanks alone, no
 * name twice, known dtypes, shapes and sizes that do not overflow and agree with data_offsets, no
 * holes and no overlaps from 0 to the end of the file. Every error names the file, the tensor and
 * the offset in the file. The data are not looked at. */
bool tsr_safetensors_open(
    tsr_arena *arena, const char *path, tsr_location location, tsr_safetensors *ret_file,
    tsr_diags *diags);
void tsr_safetensors_close(tsr_safetensors *file);

/* Index into `tensors`, or -1. */
int tsr_safetensors_find(const tsr_safetensors *file, const char *name);
int64_t tsr_safetensors_dtype_bytes(const char *dtype); /* 0: not known */

/* The front of a file of these tensors, whose `bytes` are set and whose data follow each other in
 * this order without gaps: N and the JSON, padded with blanks to a multiple of 8. Sets each
 * tensor's `offset`. `metadata` (NULL: none) are `metadata_count` pairs. Appends to `text`. */
void tsr_safetensors_header(
    tsr_safetensor *tensors, int count, const char *const *metadata, int metadata_count,
    tsr_text *text);

#endif
