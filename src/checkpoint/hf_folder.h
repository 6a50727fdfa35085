// SPDX-License-Identifier: Apache-2.0
/* The weights of a Hugging Face folder: model.safetensors, or the files that
 * model.safetensors.index.json names; and where a parameter of ours stands in them. */
#ifndef TSR_CHECKPOINT_HF_FOLDER_H
#define TSR_CHECKPOINT_HF_FOLDER_H
#include "checkpoint/safetensors.h"
#include "graph/graph.h"

typedef struct tsr_hf_tensor {
  const tsr_safetensor *tensor;
  const tsr_safetensors *file;
  const struct tsr_hf_tensor *scales; /* of a quantized tensor (hf_quantized.h); else NULL */
  bool used;
} tsr_hf_tensor;

typedef struct {
  tsr_arena *arena;
  tsr_safetensors *files;
  int files_count;
  tsr_hf_tensor *tensors; /* of all files, by rising name */
  int tensors_count;
} tsr_hf_folder;

/* Errors: no weights, an index and files that disagree, a tensor in two files. */
bool tsr_hf_folder_open(
    tsr_arena *arena, const char *folder, tsr_hf_folder *ret_folder, tsr_diags *diags);
void tsr_hf_folder_close(tsr_hf_folder *folder);

/* By its name there, or by that without its first component, as a file of the body alone has it
 * ("transformer.", "model."); or NULL. */
tsr_hf_tensor *tsr_hf_folder_find(const tsr_hf_folder *folder, const char *name);

/* A graph parameter's place in a Hugging Face tensor. A parameter of experts may have a tensor
 * there for each of them, "name.{expert}.weight"; without the braces one tensor holds all experts.
 * The output dimension is the first, or the one behind that of experts. Of it a parameter is a
 * part: "name#1/3" the second third of the rows, "name#1%3" the rows 1, 4, 7, …, "name#2:5/8" the
 * rows 2 to 5 of each 8. hf_transposed: the output dimension and the one behind it are swapped
 * there.
 *
 * Element (e, o, i) of what a tensor there has of the parameter, which is (experts, out, in), is
 * number first + e * expert + o / span * group + o % span * row + i * column there. */
typedef struct {
  const char *name;
  int64_t begin, end, of; /* it is rows begin to end of each `of` rows; 0, out, out: it is all */
  int64_t tensors; /* > 0: so many there, one for each index of the parameter's dimension 0 */
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* of what one tensor there has of it, without padding */
  int64_t whole[TSR_DIMS_MAX]; /* of the tensor there */
  int64_t experts, out, in;
  int64_t span; /* so many rows have the same distance; out: all */
  int64_t first, expert, group, row, column;
} tsr_hf_place;

/* False for a parameter that has no name there. */
bool tsr_hf_place_of(tsr_arena *arena, const tsr_param *param, tsr_hf_place *ret_place);
/* How many tensors there it has a part of. */
static inline int64_t tsr_hf_place_tensors(const tsr_hf_place *place) {
  return place->tensors ? place->tensors : 1;
}
static inline bool tsr_hf_place_is_part(const tsr_hf_place *place) {
  return place->end - place->begin < place->of;
}
/* Whether its elements are one run there, in our order. */
static inline bool tsr_hf_place_is_run(const tsr_hf_place *place) {
  return place->column == 1 && place->row == place->in && place->span == place->out &&
         (place->experts == 1 || !tsr_hf_place_is_part(place));
}
/* The number there of element (expert, out, 0). */
static inline int64_t tsr_hf_place_row(const tsr_hf_place *p, int64_t expert, int64_t out) {
  return p->first + expert * p->expert + out / p->span * p->group + out % p->span * p->row;
}
/* The name of the tensor there, of an expert if there is one for each. */
const char *tsr_hf_place_name(tsr_arena *arena, const tsr_hf_place *place, int64_t expert);

/* A folder's path without slashes at its end. */
const char *tsr_hf_out(tsr_arena *arena, const char *path);

#endif
