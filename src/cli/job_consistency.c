// SPDX-License-Identifier: Apache-2.0
#include "cli/job_consistency.h"
#include "base/file_read.h"
#include "base/process_info.h"
#include "config/print.h"
#include <string.h>

/* What others follow from first: the first part that differs is reported. */
enum { PROGRAM, OPTIONS, CHECKPOINT, CONFIGURATION, GRAPH, MESH, PLAN, INPUT, LOCK, PARTS };
static const char *const part_names[PARTS] = {
    [PROGRAM] = "program",
    [OPTIONS] = "command line",
    [CHECKPOINT] = "checkpoint",
    [CONFIGURATION] = "configuration",
    [GRAPH] = "graph file",
    [MESH] = "mesh",
    [PLAN] = "plan",
    [INPUT] = "hash of its data or prompts",
    [LOCK] = "run.lock"};

/* The running file: another build may compute other bits. */
static void add_program(tsr_text *text) {
  tsr_text_add(text, "tessera-train %s\n", TSR_VERSION);
  char hash[TSR_HASH_TEXT];
  tsr_process_program_hash(hash);
  tsr_text_add(text, "build %s\n", hash);
}

/* Values without the comments about their origins. */
static void add_config(const tsr_config *config, tsr_text *text) {
  tsr_text printed = {0};
  tsr_config_print(config, &printed);
  for (char *line = printed.data; line && *line;) {
    size_t length = strcspn(line, "\n");
    char *end = line + length, *origin = end;
    while (origin > line && strncmp(origin, "  # ", 4)) origin--;
    if (origin > line) length = (size_t)(origin - line);
    tsr_text_add(text, "%.*s\n", (int)length, line);
    line = *end ? end + 1 : end;
  }
  tsr_text_free(&printed);
}

/* Every process reads the file, whose attributes and initial values the plan does not show. With it
 * and the configuration, the plan, the checkpoint and the data, all of a run's recipe is compared
 * (train/resume_recipe.h). */
static void add_graph(const tsr_config *config, const tsr_compiled *compiled, tsr_text *text) {
  const tsr_yaml *file = config->model.map ? tsr_yaml_get(config->model.map, "graph") : NULL;
  const char *type = config->model.model_type;
  tsr_text_add(
      text, "%s, hash %s\n",
      file   ? file->text
      : type ? type
             : "the configuration's",
      compiled->model->source);
}

static void add_plan(const setup *s, const tsr_compiled *compiled, tsr_text *text) {
  const tsr_compute *c = &s->compute;
  tsr_text_add(text, "kernels %s\n", c->arch);
  for (int i = 0; compiled->placed && i < compiled->programs.pipeline->stages; i++)
    tsr_program_print(compiled->programs.of_stage[i], text);
}

/* Of a job without a shared file system each process has a copy, and they would compute with a
 * mixture. */
static void add_checkpoint(const consistency_inputs *in, tsr_text *text) {
  if (in->checkpoint) tsr_manifest_print_content(in->checkpoint, text);
  else tsr_text_add(text, "no checkpoint\n");
  if (in->base) tsr_manifest_print_content(in->base, text);
  if (in->adapter_hash) tsr_text_add(text, "adapters %s\n", in->adapter_hash);
}

/* The tokenizer's file encodes the prompts of samples, where no text has its tokens. */
static void add_inputs(app *a, const consistency_inputs *in, tsr_text *text) {
  enum { BYTES_MAX = 1 << 30 };
  char hash[TSR_HASH_TEXT], *bytes;
  size_t length;
  const char *tokenizer = in->data ? in->data->tokenizer_file : NULL;
  if (in->data && in->data->dataset.sources_count + in->data->dataset.table.rows) {
    tsr_dataset_fingerprint(&in->data->dataset, hash);
    tsr_text_add(text, "data %s\n", hash);
    tsr_dataset_validation_fingerprint(&in->data->dataset, hash);
    tsr_text_add(text, "validation %s\n", hash);
  }
  if (tokenizer &&
      tsr_file_read(
          a->arena, tokenizer, BYTES_MAX, TSR_NOWHERE, &bytes, &length, tsr_diags_new(a->arena))) {
    tsr_hash_text(bytes, length, hash);
    tsr_text_add(text, "tokenizer %s\n", hash);
  }
  if (in->routing_hash) tsr_text_add(text, "routing %s\n", in->routing_hash);
  if (in->prompts_hash) tsr_text_add(text, "prompts %s\n", in->prompts_hash);
}

/* The chain stands for the recipe and for all steps before. */
static void add_lock(const consistency_inputs *in, tsr_text *text) {
  const tsr_locked_step *last = in->lock ? tsr_run_lock_at(in->lock, in->locked_last) : NULL;
  if (in->lock) tsr_text_add(text, "from step %lld\n", (long long)in->lock->first.step);
  if (last) tsr_text_add(text, "to step %lld, chain %s\n", (long long)last->step, last->chain);
}

/* Policy fast: the transport's own sums need groups of processes, where devices have no
 * communicators. Forming them blocks inside the transport. */
static bool form_groups(app *a, setup *s) {
  char why[TSR_WHY_BYTES] = "";
  if (s->config->numerics.policy != TSR_NUMERICS_FAST || s->ranks.communicators) return true;
  tsr_job_set_deadline(a->job.timeout_s, "formed its groups");
  bool ok = tsr_rank_map_form_groups(a->arena, s->parallel, &s->ranks, why);
  tsr_job_end_deadline();
  return ok || tsr_job_fail_unresponsive(&a->job, "processes cannot form groups", why);
}

bool consistency_check(
    app *a, setup *s, const tsr_compiled *compiled, const consistency_inputs *inputs) {
  if (tsr_job_is_alone(&a->job)) return true;
  tsr_text texts[PARTS] = {{0}};
  add_program(&texts[PROGRAM]);
  tsr_options_print_shared(&a->options, &texts[OPTIONS]);
  add_checkpoint(inputs, &texts[CHECKPOINT]);
  add_config(s->config, &texts[CONFIGURATION]);
  add_graph(s->config, compiled, &texts[GRAPH]);
  tsr_mesh_print(s->mesh, &texts[MESH]);
  add_plan(s, compiled, &texts[PLAN]);
  add_inputs(a, inputs, &texts[INPUT]);
  add_lock(inputs, &texts[LOCK]);
  bool ok = tsr_job_compare_texts(&a->job, PARTS, part_names, texts);
  for (int i = 0; i < PARTS; i++) tsr_text_free(&texts[i]);
  const tsr_node *nccl = tsr_graph_find_nccl(compiled->graph);
  return tsr_job_all_succeeded(&a->job, ok) &&
         tsr_compute_link(
             &a->job, s->config, s->parallel, &s->ranks, &s->compute,
             nccl ? &nccl->location : NULL) &&
         form_groups(a, s);
}
