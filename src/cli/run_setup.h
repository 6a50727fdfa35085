// SPDX-License-Identifier: Apache-2.0
/* What a configuration and a mesh decide before the model is read. */
#ifndef TSR_CLI_RUN_SETUP_H
#define TSR_CLI_RUN_SETUP_H
#include "cli/app.h"
#include "job/compute_device.h"
#include "mesh/mesh.h"

typedef struct {
  tsr_config *config;
  tsr_mesh *mesh;
  const char *mesh_why; /* which descriptor it is, and why */
  const char *detected; /* mesh: auto: the line that says what was counted; else NULL */
  tsr_parallel *parallel;
  tsr_rank_map ranks;
  int64_t batch_units, tp_units; /* of the recipe */
  tsr_compute compute;
  tsr_cpu_context elsewhere; /* what programs are compiled for instead, where `k` is set: of
                              * machines that are not this one (tsr_plan_device) */
} setup;

/* Each stage needs those before it, unless stated otherwise. False with diagnostics. */
bool setup_load_config(app *a, setup *s);
/* The part of it behind the configuration, which setup->config is. */
bool setup_use_config(app *a, setup *s);
/* TESSERA_DETERMINISTIC=1 overrides numerics.policy of a configuration; part of loading it. */
bool setup_override_policy(app *a, tsr_config *config);
bool setup_choose_cpu(
    app *a, setup *s); /* needs no mesh; a configuration only where there is one */
bool setup_open_mesh(app *a, setup *s);
bool setup_build_context(app *a, setup *s);
/* Maps ranks to processes. Needs the parallelism context. */
bool setup_map_ranks(app *a, setup *s);
bool setup_fix_recipe(app *a, setup *s);
/* Whether the command computes on the configuration's device; others only plan for it. */
bool setup_computes(const app *a);
/* Of commands that compute: this process's device. */
bool setup_open_device(app *a, setup *s);

const char *setup_mesh_text(const setup *s, tsr_arena *arena); /* "dp=2 tp=2" */

/* TESSERA_COMM_TRACE (report/comm_trace.h); error: it is neither 1 nor 0. */
bool setup_traces_communication(tsr_diags *diags, bool *ret_traces);

#endif
