// SPDX-License-Identifier: Apache-2.0
#include "cli/option_pairs.h"

static void check_bench(const tsr_options *c, tsr_diags *diags) {
  if (c->command != TSR_COMMAND_KERNELS || c->bench) return;
  if (c->filter) tsr_diag_error(diags, TSR_NOWHERE, "--filter goes with --bench");
  if (c->threads_text) tsr_diag_error(diags, TSR_NOWHERE, "--threads goes with --bench");
}

static void check_check(const tsr_options *c, tsr_diags *diags) {
  if (c->command == TSR_COMMAND_CHECK && c->full_mesh && !c->prove)
    tsr_diag_error(diags, TSR_NOWHERE, "--full-mesh goes with --prove");
  if (c->command == TSR_COMMAND_CHECK && c->machine && !c->svg)
    tsr_diag_error(diags, TSR_NOWHERE, "--machine goes with --svg, whose pictures have its times");
}

/* Without a configuration the machine is measured, and there is no plan. */
static void check_plan(const tsr_options *c, tsr_diags *diags) {
  if (c->command != TSR_COMMAND_PLAN || c->config || !c->calibration) return;
  if (c->svg) tsr_diag_error(diags, TSR_NOWHERE, "--svg goes with --config, whose plan it draws");
  if (c->gantt)
    tsr_diag_error(diags, TSR_NOWHERE, "--gantt goes with --config, whose plan it draws");
}

static void check_save(const tsr_options *c, tsr_diags *diags) {
  if (c->command != TSR_COMMAND_TRACE) return;
  if (c->save && c->rank_text)
    tsr_diag_error(diags, TSR_NOWHERE, "--rank goes with the program, not with --save");
  if (c->save && c->emit)
    tsr_diag_error(diags, TSR_NOWHERE, "--emit goes with the program, not with --save");
  if (c->save) return;
  if (c->tensors) tsr_diag_error(diags, TSR_NOWHERE, "--tensors goes with --save");
  if (c->steps_text) tsr_diag_error(diags, TSR_NOWHERE, "--steps goes with --save");
}

/* What only sets of lines have. (--out and --log-samples are of labelled documents, too, which the
 * command finds in the configuration.) */
static void check_eval_sets(const tsr_options *c, tsr_diags *diags) {
  const struct {
    const char *word;
    bool given;
  } belongs[] = {
      {"--last-word", c->last_word},
      {"--context-template", c->context_template != NULL},
      {"--delimiter", c->delimiter != NULL},
      {"--shots", c->shots_text != NULL},
      {"--apply-chat-template", c->apply_chat_template},
      {"--max-length", c->max_length_text != NULL}};
  if (c->command != TSR_COMMAND_EVALUATE) return;
  for (size_t i = 0; i < sizeof belongs / sizeof *belongs && !c->eval_sets.count; i++)
    if (belongs[i].given)
      tsr_diag_error(diags, TSR_NOWHERE, "%s goes with --eval-set", belongs[i].word);
  if (c->eval_sets.count && c->data)
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--data and --eval-set both name what is evaluated: use one of the two");
  if (!c->shots_file != !c->shots_text)
    tsr_diag_error(diags, TSR_NOWHERE, "--shots and --shots-file go with each other");
  if (c->shots_delimiter && !c->shots_text)
    tsr_diag_error(diags, TSR_NOWHERE, "--shots-delimiter goes with --shots");
}

static void check_tensor(const tsr_options *c, tsr_diags *diags) {
  if (c->tensor && !c->config)
    tsr_diag_error(diags, TSR_NOWHERE, "--tensor goes with --config, whose graph has the tensor");
}

static void check_tensorboard(const tsr_options *c, tsr_diags *diags) {
  if (c->histograms && !c->tensorboard)
    tsr_diag_error(diags, TSR_NOWHERE, "--tensorboard-histograms goes with --tensorboard");
  if (c->histograms_every_text && !c->histograms)
    tsr_diag_error(diags, TSR_NOWHERE, "--tensorboard-every goes with --tensorboard-histograms");
  if (c->determinism_text && c->tensorboard)
    tsr_diag_error(
        diags, TSR_NOWHERE, "--check-determinism writes nothing, no --tensorboard either");
}

static void check_fork(const tsr_options *c, tsr_diags *diags) {
  if (c->fork && c->resume)
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "--resume continues a run, --fork begins one with another's state: use one of the two");
}

static void check_report(const tsr_options *c, tsr_diags *diags) {
  if (c->command == TSR_COMMAND_REPORT && !c->html && !c->help)
    tsr_diag_error(diags, TSR_NOWHERE, "report needs --html FILE, which it writes");
}

/* A terminal has one run on it. */
static void check_watch(const tsr_options *c, tsr_diags *diags) {
  if (c->command != TSR_COMMAND_WATCH || !c->tui) return;
  if (c->port_text || c->host || c->machine)
    tsr_diag_error(
        diags, TSR_NOWHERE, "%s goes with the page, not with --tui",
        c->port_text ? "--port"
        : c->host    ? "--host"
                     : "--machine");
  if (c->arguments.count > 1)
    tsr_diag_error(diags, TSR_NOWHERE, "watch --tui shows one run, or the newest of one folder");
}

void tsr_options_check_pairs(const tsr_options *c, tsr_diags *diags) {
  check_bench(c, diags);
  check_check(c, diags);
  check_plan(c, diags);
  check_tensor(c, diags);
  check_tensorboard(c, diags);
  check_report(c, diags);
  check_watch(c, diags);
  check_fork(c, diags);
  check_save(c, diags);
  check_eval_sets(c, diags);
}
