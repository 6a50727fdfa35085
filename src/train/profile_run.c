// SPDX-License-Identifier: Apache-2.0
#include "train/profile_run.h"
#include "base/file_read.h"
#include "report/chrome_trace.h"
#include "report/profile.h"

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
      [TSR_PRECISION_FP16] = TSR_F16};
  const tsr_device *d = o->device;
  if (!d) return tsr_peak_rates_measure(o->kernels, o->threads, ret, diags);
  d->limits(d->state, types[o->config->training.precision], &ret->flops, &ret->bytes);
  return true;
}

static bool report(
    const tsr_trainer_options *o, const tsr_record *record, tsr_new_file *trace, tsr_diags *diags) {
  tsr_profile profile;
  tsr_text text = {0};
  tsr_profile_make(o->arena, record, &profile);
  if (!measure_limits(o, &profile.limits, diags)) return tsr_new_file_drop(trace), false;
  tsr_profile_print(&profile, &text);
  tsr_profile_advise(&profile, o->config, &text);
  bool ok = tsr_chrome_trace_write(trace, record, diags);
  if (ok)
    tsr_text_add(
        &text, "trace: %s, for https://ui.perfetto.dev or chrome://tracing\n", trace->path);
  if (!o->quiet) fputs(text.data, stdout);
  tsr_text_free(&text);
  return ok;
}

bool tsr_profile_command(
    const tsr_trainer_options *options, const tsr_compiled *training, int64_t steps,
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
  tsr_new_file trace; /* made first: what cannot be written need not be measured */
  const char *path = tsr_path_join(o.arena, o.out_folder ? o.out_folder : ".", "trace.json");
  if (!tsr_chrome_trace_open(path, &trace, diags)) return false;
  bool ok = tsr_train(&o, training, NULL, NULL, ret_signal, diags);
  tsr_record record = {0};
  if (ok) record = tsr_recorder_read(o.arena, recording.recorder);
  if (record.steps_count) return report(&o, &record, &trace, diags);
  tsr_new_file_drop(&trace); /* a signal came before the steps */
  return ok;
}
