// SPDX-License-Identifier: Apache-2.0
/* The tensors of a GGUF file, from the parameters of a checkpoint. */
#ifndef TSR_CHECKPOINT_GGUF_TENSORS_H
#define TSR_CHECKPOINT_GGUF_TENSORS_H
#include "checkpoint/gguf_mapping.h"
#include "checkpoint/hf_merge.h"
#include "checkpoint/reader.h"

enum { TSR_GGUF_PARTS_MAX = 8 };

typedef struct {
  const tsr_param *param; /* NULL: none yet */
  tsr_gguf_piece piece;
  const tsr_stored *stored;
  tsr_hf_merge *merge; /* NULL: it stays as it is */
} tsr_gguf_part;

typedef struct {
  tsr_gguf_part parts[TSR_GGUF_PARTS_MAX]; /* behind each other along dimension 0 */
  int parts_count;
  const float *values; /* of a tensor that is no parameter; else NULL */
} tsr_gguf_source;

typedef struct {
  tsr_gguf_tensor *tensors; /* those without parameters, then by rising names of Hugging Face's */
  tsr_gguf_source *sources; /* per tensor */
  int count;
} tsr_gguf_tensors;

/* Names, shapes and sources; every type is F32. Errors: a parameter that the checkpoint or the
 * mapping does not have. */
bool tsr_gguf_tensors_list(
    tsr_arena *arena, const tsr_gguf_mapping *mapping, const tsr_graph *graph,
    const tsr_manifest *manifest, const tsr_hf_export_options *options, tsr_gguf_tensors *ret,
    tsr_diags *diags);

/* A tensor's elements in portions of whole rows. */
typedef bool tsr_gguf_put(void *context, const float *elements, int64_t count);
bool tsr_gguf_tensor_read(
    tsr_checkpoint_reader *input, const tsr_gguf_source *source, tsr_gguf_put *put, void *context,
    tsr_diags *diags);

/* As the converter counts them: "124M", "8x7B". */
const char *tsr_gguf_size_label(tsr_arena *arena, const tsr_gguf_tensors *tensors);

#endif
