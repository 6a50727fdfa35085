// SPDX-License-Identifier: Apache-2.0
/* The units of a sample's positions: what the recipe gives, or what cp and sequence parallelism
 * need. */
#ifndef TSR_TRAIN_SEQUENCE_REDUCTION_UNITS_H
#define TSR_TRAIN_SEQUENCE_REDUCTION_UNITS_H
#include "config/config.h"
#include "parallel/parallel.h"

/* numerics.units.sequence; by default one a rank, zigzag two. */
int64_t tsr_sequence_units_count(const tsr_config *config, const tsr_parallel *parallel);

/* Whether numerics.units.sequence, if it is given, can be split over this mesh's ranks. */
bool tsr_sequence_units_fit(const tsr_config *config, const tsr_parallel *parallel);

/* Whether positions can be split so on this mesh; `units` become 1 where there is no sequence.
 * Errors: units that do not divide the sequence, that no power of two are, or that ranks would
 * split; zigzag beside sequence parallelism. */
bool tsr_sequence_units_check(
    const tsr_config *config, const tsr_parallel *parallel, int64_t sequence, int64_t *units,
    tsr_diags *diags);

#endif
