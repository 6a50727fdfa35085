/* A run's data: which files the configuration means, and which sample a step's row is. */
#ifndef TSR_TRAIN_SOURCE_H
#define TSR_TRAIN_SOURCE_H
#include "config/config.h"
#include "data/dataset.h"
#include "run/worker.h"

typedef struct {
  tsr_dataset dataset;
  const tsr_config *config;
  int64_t sequence; /* of text */
} tsr_source;

/* Text for the transformers, a CSV table or a folder of MNIST's IDX files for the others. Paths as the
 * configuration's other paths. */
bool tsr_source_open(tsr_arena *arena, const tsr_config *config, tsr_source *ret_source, tsr_diags *diags);
/* Whether data_path is given and there. */
bool tsr_source_exists(tsr_arena *arena, const tsr_config *config);
/* Both parts are long enough, and tokens and features fit the model. */
bool tsr_source_check(
    const tsr_source *source, int64_t sequence, int64_t vocab_size, int64_t features, int64_t classes,
    tsr_diags *diags);

/* The context of tsr_source_fill: one step of one part. */
typedef struct {
  const tsr_source *source;
  tsr_split split;
  int64_t first; /* position of the step's sample 0 in the global order */
} tsr_source_step;
void tsr_source_fill(void *context, const char *input, int64_t sample, void *row);
/* Targets of a step that count (are not ignore_index). */
int64_t tsr_source_targets(const tsr_source_step *step, int64_t samples);

#endif
