// SPDX-License-Identifier: Apache-2.0
/* The numbers that a step's program reads beside its data (tsr_step_scalar). */
#ifndef TSR_TRAIN_STEP_SCALARS_H
#define TSR_TRAIN_STEP_SCALARS_H
#include "config/config.h"
#include "graph/graph.h"

typedef struct {
  int64_t updates; /* steps before that changed the weights */
  double lr;
  int64_t targets;  /* of the step, that are not ignored */
  float loss_scale; /* 1: there is none */
} tsr_step_facts;

/* As with PyTorch's GradScaler, a step without an update is none to the optimizer: Adam's t counts
 * updates, while the learning rate follows the steps. */
void tsr_step_scalars_make(
    const tsr_config_optimizer *optimizer, const tsr_step_facts *facts,
    float ret_scalars[TSR_SCALARS]);

#endif
