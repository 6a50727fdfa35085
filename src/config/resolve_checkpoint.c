// SPDX-License-Identifier: Apache-2.0
/* The rules over the keys of checkpoints: names from the environment, the time limit, and what a
 * job that comes back needs. */
#include "base/text.h"
#include "config/config_internal.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "5400", "1h30m", "90s": numbers with d, h, m or s, each once at most and falling. */
bool tsr_config_duration(const char *text, double *ret_seconds) {
  static const struct {
    char letter;
    double seconds;
  } units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
  double sum = 0, before = INFINITY;
  for (const char *at = text; *at;) {
    char *end;
    size_t digits = strspn(at, "0123456789.");
    if (!isdigit((unsigned char)*at) || (*at == '0' && isdigit((unsigned char)at[1]))) return false;
    double number = strtod(at, &end), unit = 0;
    if (end != at + digits) return false; /* 1e3, 0x2, 1.2.3 */
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
      if (*end == units[i].letter) unit = units[i].seconds;
    if (!*end && at == text) unit = 1;
    if (!unit || unit >= before) return false;
    sum += number * unit;
    before = unit;
    at = *end ? end + 1 : end;
  }
  *ret_seconds = sum;
  return sum > 0 && isfinite(sum);
}

/* Data may be planned without; what a run starts from and where it writes is known. */
static void require_variables(tsr_loader *l, const char *key) {
  const char *unset = NULL;
  const tsr_yaml *node = tsr_loader_value(l, key);
  if (node && node->kind == TSR_YAML_SCALAR) tsr_include_expand(l->arena, node->text, &unset);
  if (unset)
    tsr_diag_error(l->diags, node->location, "the environment has no variable '%s'", unset);
}

static void resolve_elastic(tsr_loader *l) {
  tsr_config_elastic *e = &l->config->elastic;
  const tsr_yaml *most = tsr_loader_value(l, "elastic.max_workers");
  if (e->max_workers && most && e->max_workers < e->min_workers)
    tsr_diag_error(
        l->diags, most->location, "'max_workers' is %lld, and 'min_workers' is %lld",
        (long long)e->max_workers, (long long)e->min_workers);
  if (!e->rejoin || l->config->checkpoint.resume == TSR_RESUME_AUTO) return;
  if (tsr_loader_value(l, "checkpoint.resume"))
    tsr_loader_contradict(l, "checkpoint.resume", "elastic.rejoin");
  l->config->checkpoint.resume = TSR_RESUME_AUTO;
  tsr_loader_take_origin(l, "checkpoint.resume", "elastic.rejoin");
}

/* `checkpoint ls` prints it in a line of a table. */
static void check_tag(tsr_loader *l) {
  const tsr_yaml *tag = tsr_loader_value(l, "checkpoint.tag");
  for (const char *at = tag ? tag->text : ""; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127) {
      tsr_diag_error(l->diags, tag->location, "'tag' must be one line without control characters");
      return;
    }
}

/* What evaluations decide, in a run that makes none. */
static void warn_without_evaluation(tsr_loader *l) {
  static const char *const keys[] = {
      "checkpoint.keep_best", "training_config.early_stop_patience",
      "training_config.early_stop_min_delta"};
  const tsr_config_training *t = &l->config->training;
  bool evaluates = t->eval_every && t->validation_fraction > 0;
  const bool used[] = {
      l->config->checkpoint.keep_best, t->early_stop_patience, t->early_stop_min_delta > 0};
  for (int i = 0; i < 3; i++) {
    const tsr_yaml *key = tsr_loader_key(l, keys[i]);
    const char *why = !evaluates                          ? "there is no evaluation"
                      : i == 2 && !t->early_stop_patience ? "early_stop_patience is 0"
                                                          : NULL;
    if (used[i] && key && why)
      tsr_diag(
          l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
          "'%s' has no effect: %s", key->text, why);
  }
}

void tsr_checkpoint_resolve(tsr_loader *l) {
  tsr_config_checkpoint *c = &l->config->checkpoint;
  warn_without_evaluation(l);
  resolve_elastic(l);
  require_variables(l, "training_config.checkpoint_dir");
  require_variables(l, "training_config.model_path");
  require_variables(l, "zero.offload_path");
  require_variables(l, "lora_config.path");
  if (!c->optimizer && c->resume == TSR_RESUME_AUTO)
    tsr_loader_contradict(
        l, "checkpoint.optimizer",
        tsr_loader_value(l, "checkpoint.resume") ? "checkpoint.resume" : "elastic.rejoin");
  if (!c->optimizer && l->config->training.validate_policy == TSR_VALIDATE_RESUME)
    tsr_loader_contradict(l, "checkpoint.optimizer", "validate_policy");
  check_tag(l);
  const tsr_yaml *limit = tsr_loader_value(l, "checkpoint.time_limit");
  if (!limit || !*c->time_limit || tsr_config_duration(c->time_limit, &c->time_limit_s)) return;
  tsr_diag_error(
      l->diags, limit->location, "'time_limit' must be a time such as 5400, 90m or 1h30m, found %s",
      tsr_yaml_describe(l->arena, limit));
}
