// SPDX-License-Identifier: Apache-2.0
/* What a part of a data set consists of: documents, their lengths, targets, samples. */
#ifndef TSR_DATA_STATISTICS_H
#define TSR_DATA_STATISTICS_H
#include "data/dataset.h"

typedef struct {
  bool packs;                             /* samples are packs of conversations */
  int64_t tokens;                         /* of the part */
  int64_t documents;                      /* 0: they are not told apart */
  int64_t shortest, median, p95, longest; /* tokens of a document; p95: of the nearest rank */
  int64_t in_samples;                     /* tokens of conversations in packs; else all */
  int64_t targets;                        /* of these */
  int64_t truncated, dropped, untrained;  /* conversations (data/packing.h) */
  int64_t samples;
  bool labels; /* each document that is packed has one, which is its target */
} tsr_data_statistics;

/* Of samples of T tokens. Reads all tokens where documents are separate or a token is `ignored` as
 * a target. */
void tsr_dataset_statistics(
    const tsr_dataset *dataset, tsr_split split, int64_t T, int64_t ignored,
    tsr_data_statistics *ret);

/* How many documents of a part's samples have each label, in `arena`; returns the number of
 * classes, 0 where documents have none. */
int tsr_dataset_label_counts(
    tsr_arena *arena, const tsr_dataset *dataset, tsr_split split, int64_t **ret_counts);

#endif
