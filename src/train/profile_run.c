// SPDX-License-Identifier: Apache-2.0
#include "train/profile_run.h"
#include "base/file_read.h"
#include "report/chrome_trace.h"
#include "report/profile.h"
#include "train/profile_processes.h"

/* 40 bytes each in memory, about 200 in the file. */
enum { EVENTS_MAX = 4 << 20 };

static bool check_events(const tsr_recording *r, int64_t events_of_step, tsr_diags *diags) {
  int64_t fit = EVENTS_MAX / events_of_step;
  if (r->steps <= fit) return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "%d steps of this mesh are %s events, of which %s can be kept", r->steps,
      tsr_text_count(r->steps * events_of_step).text, tsr_text_count(EVENTS_MAX).text);
  if (fit) tsr_diag_hint(diags, "--steps %lld would do", (long long)fit);
  else tsr_diag_hint(diags, "a smaller mesh, or fewer microbatches, would do");
  return false;
}

static bool measure_limits(const tsr_trainer_options *o, tsr_peak_rates *ret, tsr_diags *diags) {
  static const tsr_dtype types[] = {
      [TSR_PRECISION_F32] = TSR_F32,
      [TSR_PRECISION_BF16] = TSR_BF16,
      [TSR_PRECISION_FP16] = TSR_F16,
      [TSR_PRECISION_FP8] = TSR_BF16};
  const tsr_device *d = o->device;
  if (!d) return tsr_peak_rates_measure(o->kernels, o->threads, ret, diags);
  d->limits(d->state, types[o->config->training.precision], &ret->flops, &ret->bytes);
  return true;
}

static void print(
    const tsr_trainer_options *o, const tsr_record *record, const tsr_peak_rates *limits,
    const char *path) {
  tsr_profile profile;
  tsr_text text = {0};
  tsr_profile_make(o->arena, record, &profile);
  profile.limits = *limits;
  tsr_profile_print(&profile, &text);
  tsr_profile_advise(&profile, o->config, &text);
  tsr_text_add(&text, "trace: %s, for https://ui.perfetto.dev or chrome://tracing\n", path);
  if (!o->quiet) fputs(text.data, stdout);
  tsr_text_free(&text);
}

/* All measure their limits at once: processes of one host share them. */
static bool report(
    const tsr_trainer_options *o, tsr_job *job, const tsr_clock_offset *offsets, tsr_record *record,
    const char *path, tsr_diags *diags) {
  tsr_peak_rates limits = {0};
  tsr_new_file trace;
  bool ok = tsr_job_all_succeeded(job, measure_limits(o, &limits, diags)) &&
            tsr_record_gather(job, offsets, record);
  if (!ok) return false;
  if (job->transport.process) return tsr_job_all_succeeded(job, true);
  ok = tsr_chrome_trace_open(path, &trace, diags) && tsr_chrome_trace_write(&trace, record, diags);
  if (ok) print(o, record, &limits, path);
  return tsr_job_all_succeeded(job, ok);
}

/* Before anything is measured; nothing is left of it, however the steps end. */
static bool check_trace(const char *path, tsr_diags *diags) {
  tsr_new_file trace;
  if (!tsr_chrome_trace_open(path, &trace, diags)) return false;
  tsr_new_file_drop(&trace);
  return true;
}

bool tsr_profile_command(
    const tsr_trainer_options *options, const tsr_compiled *training, tsr_job *job, int64_t steps,
    int *ret_signal, tsr_diags *diags) {
  if (training->graph->loss < 0)
    return tsr_diag_error(
        diags, (tsr_location){.file = options->config->file},
        "there is nothing to train: the graph has no loss");
  int64_t events = tsr_recorder_events_of_step(&training->programs, options->parallel);
  tsr_recording recording = {.first_step = TSR_PROFILE_WARM_UP};
  recording.steps = steps ? (int)steps : TSR_PROFILE_STEPS;
  recording.events = recording.steps * events;
  if (!check_events(&recording, events, diags)) return false;
  tsr_trainer_options o = *options;
  o.recording = &recording;
  const char *path = tsr_path_join(o.arena, o.out_folder ? o.out_folder : ".", "trace.json");
  tsr_clock_offset *offsets =
      tsr_arena_array(o.arena, tsr_clock_offset, job->transport.processes + 1);
  bool writes = !job->transport.process;
  if (!tsr_job_all_succeeded(job, !writes || check_trace(path, diags)) ||
      !tsr_clocks_compare(job, offsets) || !tsr_train(&o, training, NULL, NULL, ret_signal, diags))
    return false;
  if (!tsr_job_all_succeeded(job, true)) return false;
  tsr_record record = {0};
  if (recording.recorder) record = tsr_recorder_read(o.arena, recording.recorder);
  if (!record.steps_count) return true; /* a signal came before the steps */
  return tsr_clocks_compare(job, offsets) && report(&o, job, offsets, &record, path, diags);
}
