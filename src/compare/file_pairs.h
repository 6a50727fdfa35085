// SPDX-License-Identifier: Apache-2.0
/* Which tensor of one file is which of another one, and the numbers of both in one order. */
#ifndef TSR_COMPARE_FILE_PAIRS_H
#define TSR_COMPARE_FILE_PAIRS_H
#include "checkpoint/safetensors.h"
#include "compare/foreign_place.h"

/* A tensor of file `ours`. In the other one it has the same name, or another name and a place. */
typedef struct {
  int ours;
  const tsr_safetensor *tensor;
  const tsr_safetensor **there; /* count of them: one an expert, or one */
  int64_t count;
  bool is_placed;
  tsr_hf_place place;
} tsr_file_pair;

typedef struct {
  tsr_file_pair *pairs; /* in the order of the files */
  int count;
  int only[2]; /* tensors that one file alone has */
} tsr_file_pairs;

tsr_file_pairs tsr_file_pairs_find(tsr_arena *arena, const tsr_safetensors files[2]);

/* A value of a file's metadata under prefix and name; NULL: there is none. */
const char *tsr_file_metadata(const tsr_safetensors *file, const char *prefix, const char *name);

/* An error where both have other shapes, or where one has numbers and the other one none. */
bool tsr_file_pair_check(
    const tsr_file_pair *pair, const tsr_safetensors files[2], tsr_diags *diags);
bool tsr_file_pair_same_bits(const tsr_file_pair *pair, const tsr_safetensors files[2]);

/* Whether a type is of integers, and whether it is one of floats that can be read. */
bool tsr_dtype_name_is_integer(const char *dtype);
bool tsr_dtype_name_is_float(const char *dtype);

/* Of file 0 or 1, as many numbers as `pair->tensor` has, in its order; on the heap. NULL: there is
 * no memory. Of both as floats, or of both as integers. */
float *tsr_file_pair_floats(const tsr_file_pair *pair, const tsr_safetensors files[2], int file);
int64_t *
tsr_file_pair_integers(const tsr_file_pair *pair, const tsr_safetensors files[2], int file);
int64_t tsr_safetensor_elements(const tsr_safetensor *tensor);

#endif
