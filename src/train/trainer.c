// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_internal.h"
#include "base/command_progress.h"
#include "train/epochs.h"
#include "train/fork_metrics.h"
#include "train/gradient_dump.h"
#include "train/replica_checks.h"
#include "train/resume_recipe.h"
#include "train/run_hashes.h"
#include "train/score_check.h"
#include "train/step_files.h"
#include "train/step_scalars.h"
#include "train/validation_monitor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- one step ---- */

static float read_number(const tsr_executable *executable, int value, int index) {
  float numbers[8];
  tsr_executable_read(executable, value, numbers);
  return numbers[index];
}

static void start_scale(tsr_trainer *t) {
  const tsr_config_training *c = &t->o->config->training;
  bool tessera = c->loss_scale == TSR_SCALE_TESSERA;
  tsr_loss_scale_init(
      &t->scale, tessera ? TSR_LOSS_SCALE_TESSERA : TSR_LOSS_SCALE_INTERVAL,
      (float)c->loss_scale_init, c->loss_scale_interval);
}

/* After a step: the next one's scale. */
static void next_scale(tsr_trainer *t, bool overflow) {
  bool stays = t->o->config->training.loss_scale == TSR_SCALE_STATIC;
  t->used_scale = (double)t->scale.scale;
  if (!stays) tsr_loss_scale_next(&t->scale, overflow);
  if (!overflow || t->o->quiet) return;
  char text[32];
  tsr_loss_scale_text(t->scale.scale, text);
  tsr_progress_clear(&t->progress);
  printf(
      "Gradient overflow detected, %s %s\n",
      stays ? "the loss scale stays" : "reducing loss scale to", text);
}

static void set_step_scalars(tsr_trainer *t, const tsr_run_data_step *step) {
  float step_scalars[TSR_SCALARS];
  tsr_step_facts facts = {t->updates, t->lr, tsr_run_data_targets(step, t->samples), 1};
  if (tsr_trainer_scales_loss(t)) facts.loss_scale = t->scale.scale;
  tsr_step_scalars_make(&t->o->config->optimizer, &facts, step_scalars);
  tsr_executable_set_step_scalars(t->train, step_scalars);
}

/* What a step's inputs are filled from. */
typedef struct {
  tsr_run_data_step data;
  const tsr_routing_replay *replay;
  int64_t step; /* from 1 */
} step_source;

static void fill_step(void *context, const char *input, int64_t sample, void *row) {
  step_source *s = context;
  if (!s->replay || !tsr_routing_replay_fill(s->replay, s->step, input, sample, row))
    tsr_run_data_fill(&s->data, input, sample, row);
}

static step_source source_of(const tsr_trainer *t, int64_t step) {
  return (step_source){
      .data = {t->o->data, TSR_SPLIT_TRAIN, step * t->samples, t->samples},
      .replay = t->o->replay,
      .step = step + 1};
}

static void note_capture(tsr_trainer *t) {
  const char *why = tsr_executable_take_capture_note(t->train);
  if (!why || t->o->rank_map.process) return;
  tsr_diag_note(
      t->diags, tsr_config_location(t->o->config, "device_config.device"),
      "steps are not launched as CUDA graphs: %s", why);
  tsr_progress_clear(&t->progress);
  tsr_diags_print(t->diags, stderr);
}

static void run_step(tsr_trainer *t) {
  step_source step = source_of(t, t->step), next = source_of(t, t->step + 1);
  const tsr_graph *g = t->training->placed;
  t->lr = tsr_learning_rate(&t->curve, t->step);
  set_step_scalars(t, &step.data);
  if (t->step + 1 < t->steps) tsr_executable_announce(t->train, t->step + 1, fill_step, &next);
  tsr_executable_run(t->train, t->step, fill_step, &step);
  note_capture(t);
  t->loss = read_number(t->train, g->loss, 0);
  int clip = tsr_graph_find_output(g, "clip");
  t->norm = clip < 0 ? NAN : read_number(t->train, clip, 0);
  bool overflow = clip >= 0 && read_number(t->train, clip, 2) == 0;
  t->updates += !overflow;
  if (tsr_trainer_scales_loss(t)) next_scale(t, overflow);
  if (tsr_trainer_scales_loss(t)) t->lost = tsr_executable_take_losses(t->train);
  if (t->lost.underflows >= 0) t->lost_in_all += t->lost.underflows + t->lost.overflows;
  tsr_expert_load_read(&t->experts, t->train);
  t->step++;
  if (t->comm_recorder) tsr_trainer_print_communication(t);
}

/* ---- what lasts ---- */

static tsr_run_state state_of(const tsr_trainer *t) {
  return (tsr_run_state){
      .step = t->step,
      .updates = t->updates,
      .samples = t->step * t->samples,
      .seed = t->o->config->training.seed,
      .loss = t->loss,
      .has_scale = tsr_trainer_scales_loss(t),
      .scale = t->scale.scale,
      .scale_good_steps = t->scale.good_steps,
      .validation = t->validation};
}

static tsr_checkpoint_manager_run run_of(const tsr_trainer *t) {
  bool fast = t->o->config->numerics.policy == TSR_NUMERICS_FAST; /* it keeps no order */
  const char *own_order = tsr_parallel_own_order(
      t->o->arena, t->o->parallel, t->o->config, t->training->graph->units.batch);
  return (tsr_checkpoint_manager_run){
      .config = t->o->config,
      .data = t->o->data,
      .training = t->training,
      .executable = t->train,
      .isa = tsr_executable_arch(t->train),
      .units_order = fast ? "" : own_order,
      .routing = t->o->replay ? tsr_routing_replay_hash(t->o->replay) : NULL,
      .initial_weights = tsr_resume_recipe_weights(t->o->arena, &t->o->keep, t->training->graph),
      .initial_adapter = t->o->keep.adapter_hash,
      .samples_per_step = t->samples,
      .total_steps = t->curve.total_steps,
      .quiet = t->o->quiet,
      .forks = t->o->keep.forks,
      .data_may_differ = t->o->locked && t->o->locked->data_may_differ,
      .process = t->o->rank_map.process,
      .processes = t->o->rank_map.processes};
}

static void find_recipe(tsr_trainer *t) {
  t->facts = run_of(t);
  const tsr_manifest *resume = t->manager ? tsr_checkpoint_manager_resumed(t->manager) : NULL;
  tsr_resume_recipe(t->o->arena, &t->facts, resume, &t->recipe_entries, &t->recipe_count);
  tsr_recipe_hash(t->recipe_entries, t->recipe_count, t->recipe);
}

static bool start_checkpoint_manager(tsr_trainer *t) {
  const tsr_checkpoint_manager_options *keep = &t->o->keep;
  tsr_checkpoint_manager_run run = run_of(t);
  tsr_run_state state = state_of(t);
  bool begins = !keep->resume && !keep->weights && !t->o->config->lora.enabled; /* anew */
  if (!keep->folder && begins && !keep->limit_s) return true;
  if (!tsr_checkpoint_manager_open(t->o->arena, keep, &run, &state, &t->manager, t->diags))
    return false;
  tsr_trainer_take_state(t, &state);
  return true;
}

/* The run is known to be what the folder of results is for. */
static bool begin_results(tsr_trainer *t) {
  const tsr_trainer_options *o = t->o;
  bool overwrites = o->keep.purpose == TSR_OUT_OVERWRITES;
  int64_t from = overwrites || tsr_fork_begins_files(o) ? 0 : t->step;
  if (o->gradients)
    t->gradient_path = tsr_arena_array(o->arena, char, strlen(o->gradients) + TSR_STEP_FILE_BYTES);
  if (o->routing)
    t->routing_path = tsr_arena_array(o->arena, char, strlen(o->routing) + TSR_STEP_FILE_BYTES);
  bool ok = (!o->gradient_folder || tsr_step_folder_begin(
                                        o->arena, &tsr_gradient_files, o->gradient_folder,
                                        overwrites, o->config, t->diags)) &&
            (!o->routing_folder || tsr_step_folder_begin(
                                       o->arena, &tsr_routing_files, o->routing_folder, overwrites,
                                       o->config, t->diags)) &&
            (!o->out || tsr_out_folder_begin(o->arena, o->out, o->config, t->diags)) &&
            tsr_metrics_begin(o->metrics, from, t->diags) && tsr_tensorboard_run_begin(t) &&
            tsr_run_hashes_begin(t, t->diags);
  return !tsr_executable_agree(t->train, !ok);
}

/* A thread's messages are printed at once, not at the end. */
static void keep_step(tsr_trainer *t, double seconds, bool wanted) {
  tsr_run_state state = state_of(t);
  if (!t->manager) return;
  tsr_checkpoint_manager_step(t->manager, &state, t->loss, t->norm, seconds, wanted, t->diags);
  if (!tsr_diags_waiting(t->diags)) return;
  tsr_progress_clear(&t->progress);
  tsr_diags_print(t->diags, stderr);
}

static bool keep_state(tsr_trainer *t) {
  tsr_run_state state = state_of(t);
  return !t->manager || tsr_checkpoint_manager_finish(t->manager, &state, t->diags);
}

/* ---- the loop ---- */

/* What signals and clocks ask for: the same for all processes, whichever they asked. */
enum { REQUEST_SAVE = 1, REQUEST_LATE = 2, REQUEST_STOP = 4, REQUEST_SIGNAL_AT = 8 };

static bool is_at_stop(const tsr_trainer *t) { return t->o->stop_at && t->step >= t->o->stop_at; }

static uint64_t agree_requests(tsr_trainer *t) {
  uint64_t requests = 0;
  bool wants = t->o->save && *t->o->save;
  if (wants) *t->o->save = 0;
  if (wants) requests |= REQUEST_SAVE;
  if (t->manager && tsr_checkpoint_manager_is_late(t->manager)) requests |= REQUEST_LATE;
  if (is_at_stop(t)) requests |= REQUEST_STOP;
  if (*t->o->stop) requests |= (uint64_t)*t->o->stop << REQUEST_SIGNAL_AT;
  return tsr_executable_agree(t->train, requests);
}

/* A signal that came before the first step ends a run that has left nothing yet. */
static bool is_stopped_early(tsr_trainer *t, int *ret_signal) {
  uint64_t requests = agree_requests(t);
  *ret_signal = t->step < t->steps ? (int)(requests >> REQUEST_SIGNAL_AT) : 0;
  if (*ret_signal && !t->o->quiet) printf("stopped: no step was made\n");
  return *ret_signal;
}

static bool write_gradients(tsr_trainer *t) {
  tsr_gradient_dump dump = {
      .folder = t->o->gradients, .recipe = t->recipe, .path = t->gradient_path, .step = t->step};
  if (!dump.folder) return true;
  dump.factor = tsr_trainer_scales_loss(t) ? 1 / t->used_scale : 1;
  dump.writes = t->o->rank_map.process == 0;
  bool ok = tsr_gradient_dump_write(&dump, t->training, t->train, t->diags);
  return !tsr_executable_agree(t->train, !ok);
}

static bool write_routing(tsr_trainer *t) {
  tsr_routing_record record = {
      .folder = t->o->routing, .recipe = t->recipe, .path = t->routing_path, .step = t->step};
  if (!record.folder) return true;
  record.writes = t->o->rank_map.process == 0;
  bool ok = tsr_routing_record_write(&record, t->train, t->diags);
  return !tsr_executable_agree(t->train, !ok);
}

/* What the step and, on a device that is ahead, the next one replay. */
static bool load_routing(tsr_trainer *t) {
  tsr_routing_replay *replay = t->o->replay;
  if (!replay) return true;
  int64_t last = t->step + 1 < t->steps ? t->step + 2 : t->step + 1;
  bool ok = tsr_routing_replay_load(replay, t->step + 1, last, t->diags);
  return !tsr_executable_agree(t->train, !ok);
}

static bool check_scores(tsr_trainer *t) {
  char when[32];
  snprintf(when, sizeof when, "step %lld", (long long)t->step);
  return tsr_check_scores(t->train, when, t->diags);
}

static bool observe_before(tsr_trainer *t) {
  const tsr_step_observer *o = t->o->observer;
  return !o || o->before(o->context, t->train, t->step + 1, t->diags);
}

/* Of the last step behind its checkpoint, but for an evaluation that decides about checkpoints. */
static bool report_step_texts(tsr_trainer *t) {
  if (t->step < t->steps) return tsr_trainer_report_texts(t, false);
  bool monitored = t->eval && tsr_validation_is_monitored(t->o->config);
  return !monitored || tsr_trainer_report_evaluation(t);
}

/* A run that has stopped early is not continued, unless its patience has grown. */
static void end_early(tsr_trainer *t) {
  if (t->step >= t->steps || t->is_repetition ||
      !tsr_validation_is_over(t->o->config, &t->validation))
    return;
  t->ends_early = true;
  t->steps = t->step;
  if (!t->o->quiet)
    printf(
        "nothing is left to train: the run stopped early, after step %lld\n", (long long)t->step);
}

/* What the run may keep of the step and is not kept yet; never where replicas differ. */
static bool keep_last(tsr_trainer *t) {
  return tsr_replica_checks_run(t) == TSR_REPLICAS_PASS && keep_state(t);
}

/* One step is made however late it is: a job that is started again and again gets on. What is made
 * of the last weights (an evaluation, a text) may take long or fail: they are on the disk before.
 */
static bool run_steps(tsr_trainer *t, uint64_t *requests) {
  bool validates = t->o->config->training.validate;
  while (t->step < t->steps && *requests <= REQUEST_SAVE) {
    double start = now();
    if (!load_routing(t) || !observe_before(t)) return false;
    run_step(t);
    if (!tsr_run_data_check_used(t->o->data, t->diags) || !check_scores(t)) return false;
    if (!write_gradients(t) || !write_routing(t) || !tsr_tensorboard_run_histograms(t))
      return false;
    bool due = tsr_replica_checks_are_due(t);
    tsr_replicas_outcome replicas = due ? tsr_replica_checks_run(t) : TSR_REPLICAS_PASS;
    if (replicas == TSR_REPLICAS_RETURN) continue;
    if (!tsr_run_hashes_step(t, t->diags) || replicas == TSR_REPLICAS_FAIL) return false;
    double seconds = now() - start;
    if (t->o->determinism) t->o->determinism->losses[t->step - 1 - t->first_step] = (float)t->loss;
    tsr_trainer_report_step(t, seconds, now());
    tsr_command_progress_add(1); /* of a command that makes steps again */
    if (!isfinite(t->loss) && !(t->o->locked && t->o->locked->last))
      return tsr_diag_failure(
          t->diags, TSR_NOWHERE, "step %lld: the loss is %g", (long long)t->step, t->loss);
    bool ok = report_step_texts(t);
    *requests = agree_requests(t);
    bool wanted = (*requests & REQUEST_SAVE) || t->is_best, is_last = t->step == t->steps;
    if (ok && (is_last || (wanted && validates))) replicas = tsr_replica_checks_run(t);
    if (replicas == TSR_REPLICAS_FAIL) return false;
    if (replicas == TSR_REPLICAS_RETURN) continue;
    keep_step(t, seconds, wanted);
    t->is_best = false;
    if (!ok) return keep_last(t) && false;
  }
  return true;
}

/* A signal meanwhile ends the run before its first step. */
static bool begin_steps(tsr_trainer *t, uint64_t *requests) {
  if (!tsr_trainer_report_lacking(t)) return false;
  *requests |= tsr_executable_agree(t->train, (uint64_t)*t->o->stop << REQUEST_SIGNAL_AT);
  return true;
}

/* A run that returns to a checkpoint at its end makes the steps from there again. */
static bool run_loop(tsr_trainer *t, int *ret_signal) {
  uint64_t requests = is_at_stop(t) ? REQUEST_STOP : 0;
  bool has_steps = t->step < t->steps;
  tsr_replicas_outcome replicas;
  if (has_steps && !begin_steps(t, &requests)) return false;
  do {
    if (!run_steps(t, &requests)) return false;
    replicas = tsr_replica_checks_run(t);
    if (replicas == TSR_REPLICAS_FAIL) return false;
  } while (replicas == TSR_REPLICAS_RETURN);
  *ret_signal = t->step < t->steps ? (int)(requests >> REQUEST_SIGNAL_AT) : 0;
  bool stops = t->step < t->steps && !*ret_signal;
  if (stops) *ret_signal = requests & REQUEST_STOP ? TSR_ENDED_BY_STEP : TSR_ENDED_BY_LIMIT;
  if (stops && !t->o->quiet) {
    const char *why = requests & REQUEST_STOP ? "--stop-at" : "time limit";
    tsr_progress_clear(&t->progress);
    printf("%s: stops after step %lld of %lld\n", why, (long long)t->step, (long long)t->steps);
  }
  if (!keep_state(t)) return false;
  if (!has_steps) return tsr_trainer_report_lacking(t);
  return t->step < t->steps || tsr_trainer_report_texts(t, true);
}

/* Makes the recorder; a recording also ends the run behind what it records. */
static bool start_recording(tsr_trainer *t) {
  tsr_recording *r = t->o->recording;
  if (!r && t->o->comm_trace) {
    int64_t events = tsr_recorder_events_of_step(&t->training->programs, t->o->parallel);
    t->comm_recorder = tsr_executable_record(t->o->arena, t->train, 0, 1, events);
    t->comm_trace = tsr_comm_trace_start(t->o->arena, t->o->parallel->ranks);
    t->comm_trace.rank_map = &t->o->rank_map;
    t->comm_trace.fast = t->o->config->numerics.policy == TSR_NUMERICS_FAST;
    t->comm_trace.all_reduce = tsr_config_all_reduce(t->o->config);
  }
  if (!r) return true;
  t->steps = r->first_step + r->steps;
  if (t->steps > t->curve.total_steps) {
    tsr_diag_error(
        t->diags, tsr_config_location(t->o->config, "training_config.max_steps"),
        "the run has %lld step%s; %lld to warm up and %d that are recorded are %lld",
        (long long)t->curve.total_steps, t->curve.total_steps == 1 ? "" : "s",
        (long long)r->first_step, r->steps, (long long)t->steps);
    if (t->curve.total_steps > r->first_step)
      tsr_diag_hint(
          t->diags, "--steps %lld would do", (long long)(t->curve.total_steps - r->first_step));
    return false;
  }
  r->recorder = tsr_executable_record(t->o->arena, t->train, r->first_step, r->steps, r->events);
  return true;
}

/* zero.offload keeps the optimizer's state in a file: in offload_path, else beside the results. */
static const char *state_folder(const tsr_trainer_options *o) {
  const tsr_config_zero *zero = &o->config->zero;
  if (zero->offload == TSR_OFFLOAD_NONE) return NULL;
  return zero->offload_path[0] ? zero->offload_path : o->out_folder ? o->out_folder : ".";
}

/* A run of fewer steps whose collectives are hashed. */
static bool begin_determinism(tsr_trainer *t) {
  tsr_determinism_run *r = t->o->determinism;
  r->first_step = t->step;
  if (t->step >= t->steps)
    return tsr_diag_error(
        t->diags, tsr_config_location(t->o->config, "training_config.max_steps"),
        "no step is left of the run's %lld: there is nothing to compare", (long long)t->steps);
  if (r->steps > t->steps - t->step) r->steps = t->steps - t->step;
  t->steps = t->step + r->steps;
  r->losses = tsr_arena_array(t->o->arena, float, r->steps);
  tsr_executable_digest(t->train, &r->digests);
  return true;
}

bool tsr_train(
    const tsr_trainer_options *o, const tsr_compiled *training, const tsr_compiled *evaluation,
    const tsr_compiled *generation, int *ret_signal, tsr_diags *diags) {
  tsr_trainer t = {
      .o = o,
      .training = training,
      .evaluation = evaluation,
      .generation = generation,
      .diags = diags};
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX] = {training->programs};
  tsr_executable *executable[TSR_COMPILED_PROGRAMS_MAX] = {0};
  int count = 1, eval_at = 0, generate_at = 0;
  if (evaluation) programs[eval_at = count++] = evaluation->programs;
  if (generation) count += tsr_generation_programs(generation, &programs[generate_at = count]);
  tsr_process_options options = {
      o->parallel, o->kernels, o->threads, o->config->training.seed,
      o->config->device.memory_limit};
  options.state_folder = state_folder(o);
  options.device = o->device;
  options.fast = o->config->numerics.policy == TSR_NUMERICS_FAST;
  options.all_reduce = tsr_config_all_reduce(o->config);
  options.rank_map = o->rank_map;
  options.timeout_s = o->timeout_s;
  options.lost = o->lost;
  options.lost_context = o->lost_context;
  tsr_process *process = NULL;
  if (!tsr_process_open(o->arena, &options, programs, count, &process, executable, diags))
    return false;
  t.train = executable[0];
  t.eval = evaluation ? executable[eval_at] : NULL;
  if (evaluation) tsr_trainer_prepare_evaluation(&t);
  if (generation)
    t.generator = tsr_generator_of(
        generation, &executable[generate_at], o->data->dataset.tokenizer.vocab_size);
  t.experts = tsr_expert_load_of(o->arena, training->placed);
  if (o->routing) tsr_executable_record_routing(o->arena, t.train);
  t.samples = training->batch * training->programs.pipeline->microbatches;
  t.curve = tsr_lr_curve_of(o->config, tsr_epochs_steps(o->config, o->data, t.samples));
  t.steps = t.curve.total_steps;
  int64_t last = o->observer ? o->observer->last : o->locked ? o->locked->last : 0;
  if (last) t.steps = last;
  t.is_repetition = last > 0;
  if (tsr_trainer_scales_loss(&t)) start_scale(&t);
  if (!o->rank_map.process && tsr_epochs_warn(o->config, t.curve.total_steps, diags))
    tsr_diags_print(diags, stderr); /* before the steps, not after them */
  t.progress = tsr_progress_start(stdout, o->quiet, o->config->training.log_every, 0, now());
  bool ok = start_recording(&t) && start_checkpoint_manager(&t);
  if (ok) find_recipe(&t);
  ok = ok && tsr_run_hashes_check(&t, diags);
  if (ok) end_early(&t);
  ok = ok && tsr_replica_checks_begin(&t);
  if (ok && o->determinism) ok = begin_determinism(&t);
  if (ok && !is_stopped_early(&t, ret_signal)) {
    ok = begin_results(&t);
    t.first_step = t.step;
    tsr_dashboard_run_begin(&t, now());
    if (ok) tsr_trainer_write_start(&t);
    if (ok) tsr_fork_metrics_add(&t);
    ok = ok && run_loop(&t, ret_signal) && tsr_trainer_write_end(&t, *ret_signal);
  }
  tsr_checkpoint_manager_close(t.manager);
  tsr_progress_clear(&t.progress);
  tsr_process_close(process);
  return ok;
}
