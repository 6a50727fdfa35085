// SPDX-License-Identifier: Apache-2.0
#include "report/progress.h"
#include "base/terminal_line.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

static const double RENEW_S = 0.1;
enum { BAR_MIN = 8, BAR_MAX = 24 };

static int add(char *line, int length, int width, const char *part) {
  int more = (int)strlen(part);
  if (length + more > width) return length;
  memcpy(line + length, part, (size_t)more + 1);
  return length + more;
}

/* " [####----]" in what room there is, or nothing. */
static void format_fill(const tsr_progress_state *state, int room, char *ret_text) {
  int cells = room - 3 < BAR_MAX ? room - 3 : BAR_MAX;
  ret_text[0] = 0;
  if (cells < BAR_MIN || state->steps <= 0) return;
  double done = (double)state->step / (double)state->steps;
  int full = (int)(fmin(fmax(done, 0), 1) * cells);
  strcpy(ret_text, " [");
  for (int i = 0; i < cells; i++) strcat(ret_text, i < full ? "#" : "-");
  strcat(ret_text, "]");
}

int tsr_progress_format_bar(
    const tsr_progress_state *state, int width, char ret_line[TSR_PROGRESS_LINE_BYTES]) {
  char step[64], loss[64], speed[128] = "", eta[64], fill[BAR_MAX + 4];
  if (width > TSR_PROGRESS_LINE_BYTES - 1) width = TSR_PROGRESS_LINE_BYTES - 1;
  snprintf(step, sizeof step, "step %lld/%lld", (long long)state->step, (long long)state->steps);
  snprintf(loss, sizeof loss, "  loss %.4f", state->loss);
  if (state->tokens_per_s > 0)
    snprintf(
        speed, sizeof speed, "  %s %s/s", tsr_text_count((int64_t)(state->tokens_per_s + 0.5)).text,
        state->is_samples ? "samples" : "tok");
  snprintf(eta, sizeof eta, "  ETA %.40s", tsr_text_duration(state->eta_s).text);

  /* Room is given by importance, which is not the order on the line. */
  char *parts[] = {step, loss, eta, speed};
  int used = 0;
  for (int i = 0; i < 4; i++) {
    int more = (int)strlen(parts[i]);
    if (used + more <= width) used += more;
    else parts[i][0] = 0;
  }
  format_fill(state, width - used, fill);
  ret_line[0] = 0;
  int length = add(ret_line, 0, width, step);
  length = add(ret_line, length, width, fill);
  length = add(ret_line, length, width, loss);
  length = add(ret_line, length, width, speed);
  return add(ret_line, length, width, eta);
}

int tsr_progress_format_step(
    const tsr_progress_state *state, char ret_line[TSR_PROGRESS_LINE_BYTES]) {
  char speed[128] = "", norm[64] = "";
  if (state->tokens_per_s > 0)
    snprintf(
        speed, sizeof speed, ", %s %s/s", tsr_text_count((int64_t)(state->tokens_per_s + 0.5)).text,
        state->is_samples ? "samples" : "tokens");
  if (!isnan(state->grad_norm)) snprintf(norm, sizeof norm, ", grad norm %.4f", state->grad_norm);
  return snprintf(
      ret_line, TSR_PROGRESS_LINE_BYTES, "Step %lld: %s = %.4f%s, lr %.4e%s",
      (long long)state->step, state->is_global ? "Global Loss" : "Loss", state->loss, speed,
      state->lr, norm);
}

tsr_progress
tsr_progress_start(FILE *plain, bool quiet, int64_t log_every, int64_t first_step, double now_s) {
  bool is_plain = quiet || !tsr_terminal_line_is_live();
  return (tsr_progress){
      .bar = is_plain ? NULL : stderr,
      .plain = quiet ? NULL : plain,
      .log_every = log_every,
      .first_step = first_step,
      .start_s = now_s,
      .shown_s = now_s - 1,
  };
}

static void show_bar(tsr_progress *progress, const tsr_progress_state *state, double now_s) {
  char line[TSR_PROGRESS_LINE_BYTES];
  /* The last column stays free: some terminals break the line when it is written. */
  tsr_progress_format_bar(state, tsr_terminal_line_columns() - 1, line);
  fprintf(progress->bar, TSR_TERMINAL_LINE_CLEAR "\033[36m%s\033[0m", line);
  fflush(progress->bar);
  progress->shown_s = now_s;
  progress->is_shown = true;
}

void tsr_progress_clear(tsr_progress *progress) {
  if (!progress->is_shown) return;
  fputs(TSR_TERMINAL_LINE_CLEAR, progress->bar);
  fflush(progress->bar);
  progress->is_shown = false;
}

void tsr_progress_show(tsr_progress *progress, tsr_progress_state state, double now_s) {
  int64_t done = state.step - progress->first_step;
  bool is_last = state.step == state.steps;
  state.eta_s =
      done > 0 ? (now_s - progress->start_s) / (double)done * (double)(state.steps - state.step)
               : -1;
  if (progress->plain && progress->log_every > 0 &&
      (state.step % progress->log_every == 0 || is_last)) {
    char line[TSR_PROGRESS_LINE_BYTES];
    tsr_progress_clear(progress);
    tsr_progress_format_step(&state, line);
    fprintf(progress->plain, "%s\n", line);
    fflush(progress->plain);
    progress->shown_s = now_s - 1; /* the renewing line comes back at once */
  }
  if (progress->bar && (is_last || now_s - progress->shown_s >= RENEW_S))
    show_bar(progress, &state, now_s);
}
