// SPDX-License-Identifier: Apache-2.0
/* What TensorBoard shows of a run, as records of its event files (event_file.h): scalars, texts,
 * histograms, hyper-parameters and the graph. Scalars are f32, as the format has them. */
#ifndef TSR_TENSORBOARD_WRITER_H
#define TSR_TENSORBOARD_WRITER_H
#include "tensorboard/event_file.h"
#include "tensorboard/histogram.h"

typedef struct tsr_tensorboard tsr_tensorboard;

tsr_tensorboard *tsr_tensorboard_new(tsr_arena *arena, const char *folder);
/* As tsr_event_file_begin. Readers are told that events behind the step are void. `ret_is_new`:
 * nothing was kept: what describes the whole run is to be written. */
bool tsr_tensorboard_begin(
    tsr_tensorboard *writer, int64_t step, bool *ret_is_new, tsr_diags *diags);
/* Writes what was added. */
void tsr_tensorboard_flush(tsr_tensorboard *writer, int64_t step, tsr_diags *diags);
bool tsr_tensorboard_finish(tsr_tensorboard *writer, tsr_diags *diags);
void tsr_tensorboard_close(tsr_tensorboard *writer);

typedef struct {
  const char *tag;
  double value;
} tsr_tensorboard_scalar;

/* One record, which is read whole or not at all. */
enum { TSR_TENSORBOARD_SCALARS_MAX = 32 };
void tsr_tensorboard_add_scalars(
    tsr_tensorboard *writer, int64_t step, const tsr_tensorboard_scalar *scalars, int count);
/* Valid UTF-8. */
void tsr_tensorboard_add_text(
    tsr_tensorboard *writer, int64_t step, const char *tag, const char *text);
/* tsr_histogram.others is not part of the format. */
void tsr_tensorboard_add_histogram(
    tsr_tensorboard *writer, int64_t step, const char *tag, const tsr_histogram *histogram);

/* A histogram whose bucket i has counts[i]: of choices of experts, by the expert. At most
 * TSR_TENSORBOARD_COUNTS_MAX are shown one by one; more are added up in neighbouring buckets. */
enum { TSR_TENSORBOARD_COUNTS_MAX = 512 };
void tsr_tensorboard_add_counts(
    tsr_tensorboard *writer, int64_t step, const char *tag, const double *counts, int count);

/* Values that are numbers, or true or false, are such, and others text. */
typedef struct {
  const char *key, *value;
} tsr_tensorboard_hparam;
void tsr_tensorboard_add_hparams(
    tsr_tensorboard *writer, const tsr_tensorboard_hparam *hparams, int count);
/* The run has ended; whether it has done all its steps. */
void tsr_tensorboard_add_end(tsr_tensorboard *writer, int64_t step, bool is_done);

typedef enum { /* of the format, by its numbers */
               TSR_TENSORBOARD_F32 = 1,
               TSR_TENSORBOARD_I32 = 3,
               TSR_TENSORBOARD_BF16 = 14,
               TSR_TENSORBOARD_F16 = 19
} tsr_tensorboard_dtype;

/* A node with one result. Names are unique; TensorBoard groups them by '/'. */
typedef struct {
  const char *name, *op;
  char **inputs; /* names of nodes */
  int inputs_count;
  tsr_tensorboard_dtype dtype;
  int ndim;
  const int64_t *shape;
} tsr_tensorboard_node;
void tsr_tensorboard_add_graph(
    tsr_tensorboard *writer, tsr_arena *scratch, const tsr_tensorboard_node *nodes, int count);

#endif
