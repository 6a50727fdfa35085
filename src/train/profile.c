#include "train/profile.h"
#include "base/file.h"
#include "report/chrome_trace.h"
#include "report/profile.h"

/* 40 bytes each in memory, about 200 in the file. */
enum { EVENTS_MAX = 4 << 20 };

static bool check_events(const tsr_recording *r, int64_t events_of_step, tsr_diags *diags) {
  int64_t fit = EVENTS_MAX / events_of_step;
  if (r->steps <= fit) return true;
  tsr_diag_error(
      diags, TSR_NOWHERE, "%d steps of this mesh are %s events, of which %s can be kept", r->steps,
      tsr_text_count(r->steps * events_of_step), tsr_text_count(EVENTS_MAX));
  if (fit) tsr_diag_hint(diags, "--steps %lld would do", (long long)fit);
  else tsr_diag_hint(diags, "a smaller mesh, or fewer microbatches, would do");
  return false;
}

static bool measure_limits(const tsr_trainer_options *o, tsr_limits *ret, tsr_diags *diags) {
  static const tsr_dtype types[] = {
      [TSR_PRECISION_F32] = TSR_F32, [TSR_PRECISION_BF16] = TSR_BF16, [TSR_PRECISION_FP16] = TSR_F16};
  const tsr_device *d = o->device;
  if (!d) return tsr_limits_measure(o->kernels, o->threads, ret, diags);
  d->limits(d->state, types[o->config->training.precision], &ret->flops, &ret->bytes);
  return true;
}

static bool report(const tsr_trainer_options *o, const tsr_record *record, tsr_diags *diags) {
  tsr_profile profile;
  tsr_text text = {0};
  const char *folder = o->out_folder ? o->out_folder : ".";
  const char *path = tsr_path_join(o->arena, folder, "trace.json");
  tsr_profile_make(o->arena, record, &profile);
  if (!measure_limits(o, &profile.limits, diags)) return false;
  tsr_profile_print(&profile, &text);
  tsr_profile_advise(&profile, o->config, &text);
  bool ok = tsr_chrome_trace_write(path, record, diags);
  if (ok) tsr_text_add(&text, "trace: %s, for https://ui.perfetto.dev or chrome://tracing\n", path);
  if (!o->quiet) fputs(text.data, stdout);
  tsr_text_free(&text);
  return ok;
}

bool tsr_profile_run(
    const tsr_trainer_options *options, const tsr_compiled *training, int64_t steps,
    int *ret_signal, tsr_diags *diags) {
  if (training->graph->loss < 0)
    return tsr_diag_error(
        diags, (tsr_place){.file = options->config->file},
        "there is nothing to train: the graph has no loss");
  int64_t events = tsr_recorder_events_of_step(&training->programs, options->parallel);
  tsr_recording recording = {.first_step = TSR_PROFILE_WARM_UP};
  recording.steps = steps ? (int)steps : TSR_PROFILE_STEPS;
  recording.events = recording.steps * events;
  if (!check_events(&recording, events, diags)) return false;
  tsr_trainer_options o = *options;
  o.recording = &recording;
  if (!tsr_train(&o, training, NULL, NULL, ret_signal, diags)) return false;
  tsr_record record = tsr_recorder_read(o.arena, recording.recorder);
  return !record.steps_count || report(&o, &record, diags); /* 0: a signal came before them */
}
