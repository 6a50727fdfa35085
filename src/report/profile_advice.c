// SPDX-License-Identifier: Apache-2.0
/* What a profile suggests: each rule reads its sums and the current configuration. */
#include "report/profile.h"
#include <string.h>

/* What makes itself felt. */
static const double BUBBLE = 0.125, SKEW = 1.10, COMMUNICATION = 0.10, MUCH_COMMUNICATION = 0.30,
                    LOW_OVERLAP = 0.25, UNEVEN_RANKS = 1.25, INPUTS = 0.10, UNUSED = 0.30;

typedef struct {
  const tsr_profile *p;
  const tsr_config *config;
  const tsr_parallel *parallel;
  const tsr_pipeline *pipeline;
  tsr_text *text;
  int count;
} advising;

static void begin(advising *a) {
  a->count++;
  tsr_text_add(a->text, "advice: ");
}

/* ---- the pipeline ---- */

/* The least multiple of the microbatches, by doubling, that leaves little of the bubble. */
static int enough_microbatches(const advising *a, double *ret_bubble) {
  const tsr_pipeline *o = a->pipeline;
  tsr_pipeline_kind kind = tsr_pipeline_find(o->name);
  if (kind == TSR_ORDERS) return 0; /* a schedule from a file is of its microbatches alone */
  tsr_arena *scratch = tsr_arena_new();
  tsr_diags *ignored = tsr_diags_new(scratch);
  int best = 0;
  for (int m = 2 * o->microbatches; m <= 16 * o->microbatches; m *= 2) {
    if (!tsr_pipeline_possible(kind, o->stages, o->chunks, m, TSR_NOWHERE, ignored)) continue;
    *ret_bubble =
        tsr_profile_even_bubble(tsr_pipeline_make(scratch, kind, o->stages, o->chunks, m));
    best = m;
    if (*ret_bubble < BUBBLE) break;
  }
  tsr_arena_free(scratch);
  return best;
}

static void advise_microbatches(advising *a) {
  const tsr_pipeline *o = a->pipeline;
  double left = 0;
  if (o->stages == 1 || a->p->bubble_even < BUBBLE) return;
  begin(a);
  tsr_text_add(
      a->text, "%d microbatch%s for %d stages leave a bubble of %.0f %% even if stages are alike: ",
      o->microbatches, o->microbatches == 1 ? "" : "es", o->stages, 100 * a->p->bubble_even);
  int more = enough_microbatches(a, &left);
  if (!more) {
    tsr_text_add(a->text, "a pipeline.schedule for more of them would leave less\n");
    return;
  }
  int64_t times = more / o->microbatches, splits = a->config->schedule.pipeline_microbatches;
  bool split = a->parallel->batch_size_local % times == 0;
  int64_t value =
      times * (split ? splits > 1 ? splits : 1 : a->config->training.gradient_accumulation_steps);
  tsr_text_add(
      a->text, "%s: %lld would leave %.0f %%%s\n",
      split ? "pipeline.microbatches" : "training_config.gradient_accumulation_steps",
      (long long)value, 100 * left, split ? "" : ", with a step of more samples");
}

static void advise_balance(advising *a) {
  const tsr_config_pipeline *c = &a->config->pipeline;
  int most = 0, least = 0;
  double sum = 0;
  for (int s = 0; s < a->pipeline->stages; s++) {
    sum += a->p->busy[s];
    if (a->p->busy[s] > a->p->busy[most]) most = s;
    if (a->p->busy[s] < a->p->busy[least]) least = s;
  }
  double skew = sum > 0 ? a->p->busy[most] * a->pipeline->stages / sum : 0;
  if (a->pipeline->stages == 1 || skew < SKEW) return;
  begin(a);
  tsr_text_add(
      a->text, "stage %d takes %.2f times as long as the mean of the stages: ", most, skew);
  if (c->stages_count || c->blocks_count)
    tsr_text_add(
        a->text, "move blocks to stage %d in %s, or leave it to pipeline.balance: auto\n", least,
        c->blocks_count ? "pipeline.blocks_per_rank" : "pipeline.stages");
  else
    tsr_text_add(
        a->text, "pipeline.blocks_per_rank with fewer blocks for it and more for stage %d\n",
        least);
}

/* ---- communication ---- */

static double communication_share(const advising *a) {
  const tsr_profile_rank *all = &a->p->all;
  double busy = all->compute + all->input + all->communication - all->overlapped;
  return busy > 0 ? all->communication / busy : 0;
}

static void advise_overlap(advising *a) {
  const tsr_profile_rank *all = &a->p->all;
  double of_all = communication_share(a), over_dp = a->p->axis_seconds[TSR_DP];
  if (of_all < COMMUNICATION || all->overlapped >= LOW_OVERLAP * all->communication) return;
  if (over_dp < COMMUNICATION * all->communication) return; /* gradients are what can overlap */
  begin(a);
  tsr_text_add(
      a->text, "%.0f %% of communication overlaps with compute: ",
      100 * all->overlapped / all->communication);
  /* ranks of one process have the same threads for both; only between processes is there a wait */
  bool several = a->p->record.processes > 1;
  if (!tsr_config_overlaps(&a->config->schedule))
    tsr_text_add(
        a->text,
        "%sschedule.all_reduce_overlap: true reduces gradients while the backward pass "
        "runs\n",
        several ? "" : "with ranks on several processes, ");
  else
    tsr_text_add(
        a->text, "%sa schedule.bucket_size below %s lets the first gradients go earlier\n",
        several ? "" : "inside one process nothing can; on several, ",
        tsr_text_bytes(a->config->schedule.bucket_size).text);
}

static void advise_communication(advising *a) {
  static const char *const fixes[TSR_AXES] = {
      [TSR_DP] = "more training_config.gradient_accumulation_steps reduce gradients less often; or "
                 "fewer ranks of dp with a larger batch each",
      [TSR_TP] = "fewer ranks of tp; what is split there is small",
      [TSR_PP] = "fewer, larger stages or microbatches",
      [TSR_CP] = "fewer ranks of cp, or longer sequences",
      [TSR_EP] = "fewer ranks of ep, or more tokens for each"};
  double of_all = communication_share(a);
  int most = 0;
  if (of_all < MUCH_COMMUNICATION) return;
  for (int x = 0; x < TSR_AXES; x++)
    if (a->p->axis_seconds[x] > a->p->axis_seconds[most]) most = x;
  begin(a);
  tsr_text_add(
      a->text, "communication is %.0f %% of what ranks do, most of it over %s: %s\n", 100 * of_all,
      tsr_axis_name(most), fixes[most]);
}

/* ---- the ranks among themselves ---- */

static void advise_ranks(advising *a) {
  const tsr_config_device *d = &a->config->device;
  int most = -1;
  double most_skew = 0;
  int each = a->parallel->ranks / a->pipeline->stages;
  for (int s = 0; s < a->pipeline->stages; s++) {
    double sum = 0;
    for (int r = 0; r < a->parallel->ranks; r++)
      if (tsr_parallel_coord(a->parallel, r, TSR_PP) == s) sum += a->p->ranks[r].compute;
    for (int r = 0; r < a->parallel->ranks; r++) {
      if (tsr_parallel_coord(a->parallel, r, TSR_PP) != s || sum <= 0) continue;
      double skew = a->p->ranks[r].compute * each / sum;
      if (skew > most_skew) most_skew = skew, most = r;
    }
  }
  if (most_skew < UNEVEN_RANKS) return;
  begin(a);
  tsr_text_add(
      a->text, "rank %d computes %.2f times as long as the ranks beside it: ", most, most_skew);
  if (a->parallel->size[TSR_CP] > 1 && d->cp_layout == TSR_CP_CONTIGUOUS)
    tsr_text_add(a->text, "device_config.cp_layout: zigzag shares causal attention out evenly\n");
  else tsr_text_add(a->text, "the others wait for it at every collective\n");
}

static void advise_inputs(advising *a) {
  const tsr_profile_rank *all = &a->p->all;
  double busy = all->compute + all->input + all->communication - all->overlapped;
  if (busy <= 0 || all->input < INPUTS * busy) return;
  begin(a);
  tsr_text_add(
      a->text,
      "inputs take %.0f %% of what ranks do: the model is small for its data, or "
      "training_config.data_path is slow to read\n",
      100 * all->input / busy);
}

/* Many small tasks: most of the time goes into waking the threads and meeting them. */
static void advise_threads(advising *a) {
  double unused = a->p->seconds > 0 ? a->p->unused / a->p->seconds : 0;
  int processes = a->p->record.processes > 1 ? a->p->record.processes : 1;
  if (a->p->record.threads <= processes || unused < UNUSED) return;
  begin(a);
  tsr_text_add(
      a->text,
      "for %.0f %% of the time no rank does anything: tasks are small for %d threads; "
      "numerics.threads: 1 may be faster\n",
      100 * unused, a->p->record.threads);
}

void tsr_profile_advise(const tsr_profile *p, const tsr_config *config, tsr_text *text) {
  advising a = {p, config, p->record.parallel, p->record.programs->pipeline, text, 0};
  advise_microbatches(&a);
  advise_balance(&a);
  advise_overlap(&a);
  advise_communication(&a);
  advise_ranks(&a);
  advise_inputs(&a);
  advise_threads(&a);
  if (!a.count) tsr_text_add(text, "advice: none; nothing stands out\n");
}
