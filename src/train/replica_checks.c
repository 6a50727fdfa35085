// SPDX-License-Identifier: Apache-2.0
#include "train/replica_checks.h"
#include "train/run_hashes.h"

bool tsr_replica_checks_begin(tsr_trainer *t) {
  t->replicas.checked = -1;
  t->replicas.passed = t->step;
  t->replicas.steps = t->steps;
  bool ok = tsr_replica_check_open(t->o->arena, t->train, &t->replicas.check, t->diags);
  return !tsr_executable_agree(t->train, !ok);
}

bool tsr_replica_checks_are_due(const tsr_trainer *t) {
  const tsr_config_training *c = &t->o->config->training;
  return c->validate &&
         (t->step % c->validate_every == 0 || tsr_checkpoint_manager_is_due(t->manager, t->step));
}

/* ---- what differs, in words ---- */

enum { RANKS_MAX = 4 };

/* "rank 0 (…), rank 1 (…) and 6 further ranks" */
static void
add_ranks(tsr_arena *arena, const tsr_trainer *t, const tsr_replica_difference *d, tsr_text *text) {
  int named = d->count <= RANKS_MAX + 1 ? d->count : RANKS_MAX;
  for (int i = 0; i < named; i++) {
    const char *between = !i ? "" : i + 1 < d->count ? ", " : " and ";
    tsr_text_add(text, "%s%s", between, tsr_executable_rank_text(arena, t->train, d->ranks[i]));
  }
  if (d->count > named) tsr_text_add(text, " and %d further ranks", d->count - named);
}

static const char *name_of(const tsr_trainer *t, const tsr_replica_difference *d) {
  return tsr_executable_graph(t->train)->values[d->value].name;
}

/* "the replicas of 'x' differ after step 3: rank 2 (…) has other bits than …" */
static void
add_first(tsr_arena *arena, const tsr_trainer *t, const tsr_replica_difference *d, tsr_text *text) {
  tsr_text_add(
      text, "the replicas of '%s' differ after step %lld: ", name_of(t, d), (long long)t->step);
  add_ranks(arena, t, d, text);
  if (d->has_majority)
    tsr_text_add(
        text, " %s other bits than the other %d ranks that hold the same part",
        d->count == 1 ? "has" : "have", d->holders - d->count);
  else tsr_text_add(text, " hold the same part with different bits");
}

/* "'y' of rank 2 (…), 'z' of rank 2 (…) and 3 further tensors" */
static void
add_others(tsr_arena *arena, const tsr_trainer *t, const tsr_replica_report *r, tsr_text *text) {
  int values = 1;
  for (int i = 1; i < r->count; i++) {
    const tsr_replica_difference *d = &r->differences[i];
    values += d->value != d[-1].value;
    tsr_text_add(text, "%s'%s' of ", i > 1 ? ", " : "", name_of(t, d));
    add_ranks(arena, t, d, text);
  }
  if (r->values > values)
    tsr_text_add(
        text, " and %d further tensor%s", r->values - values, r->values - values == 1 ? "" : "s");
}

/* The run.lock gets the hash of the parameters as they are; one step later gradients of the wrong
 * copy have reached all ranks. */
static void add_hints(const tsr_trainer *t, const tsr_replica_difference *d) {
  const char *folder = t->o->hashes ? t->o->out_folder : NULL;
  bool is_param = tsr_executable_graph(t->train)->values[d->value].kind == TSR_VALUE_PARAM;
  bool tells = is_param && t->step - t->replicas.passed == 1;
  tsr_diag_hint(
      t->diags, "which of %d copies is wrong cannot be told: no more than half are equal",
      d->holders);
  if (!folder) tsr_diag_hint(t->diags, "`tessera-train verify` can tell, of a run with --out");
  else if (tells)
    tsr_diag_hint(
        t->diags,
        "`tessera-train verify %s` tells whether the copy of rank %d, whose hash is in run.lock, "
        "is right",
        folder, d->ranks[0]);
  else
    tsr_diag_hint(
        t->diags,
        "`tessera-train verify %s` finds the first step after which the weights of rank %d were "
        "wrong",
        folder, d->ranks[0]);
}

/* One diagnostic. All processes make the texts, as they exchange names; of warnings the first one
 * alone reports it. */
static void report(const tsr_trainer *t, tsr_severity severity) {
  tsr_arena *arena = tsr_arena_new();
  tsr_text first = {0}, others = {0};
  tsr_replica_report r = tsr_replica_check_find(arena, t->replicas.check);
  int unknown = 0;
  while (unknown < r.count && r.differences[unknown].has_majority) unknown++;
  add_first(arena, t, &r.differences[0], &first);
  add_others(arena, t, &r, &others);
  if (severity == TSR_FAILURE || !t->o->rank_map.process) {
    tsr_diag(t->diags, severity, TSR_NOWHERE, "%s", first.data);
    if (others.data) tsr_diag_hint(t->diags, "so do those of %s", others.data);
    if (unknown < r.count) add_hints(t, &r.differences[unknown]);
  }
  tsr_text_free(&first);
  tsr_text_free(&others);
  tsr_arena_free(arena);
}

/* ---- what follows ---- */

static bool return_to_checkpoint(tsr_trainer *t) {
  tsr_run_state state;
  const char *folder;
  int64_t left = t->step;
  if (t->replicas.failed)
    return tsr_diag_failure(
        t->diags, TSR_NOWHERE,
        "the run ends after step %lld: it has resumed because replicas differed after step %lld, "
        "and has not passed that check since",
        (long long)t->step, (long long)t->replicas.failed);
  if (!tsr_checkpoint_manager_return(t->manager, t->replicas.passed, &state, &folder, t->diags))
    return false;
  tsr_trainer_take_state(t, &state);
  t->steps = t->replicas.steps;
  t->ends_early = t->is_best = false;
  t->evaluated = t->sampled = 0;
  t->replicas.failed = left;
  t->replicas.checked = t->step;
  bool ok = tsr_metrics_begin(t->o->metrics, t->step, t->diags) && tsr_tensorboard_run_begin(t) &&
            tsr_run_hashes_return(t, t->diags);
  if (tsr_executable_agree(t->train, !ok)) return false;
  tsr_trainer_write_start(t);
  if (!t->o->rank_map.process)
    tsr_diag_note(
        t->diags, TSR_NOWHERE, "the run resumes from '%s', after step %lld", folder,
        (long long)t->step);
  return true;
}

tsr_replicas_outcome tsr_replica_checks_run(tsr_trainer *t) {
  tsr_replica_checks *c = &t->replicas;
  tsr_validate_policy policy = t->o->config->training.validate_policy;
  if (c->checked == t->step) return TSR_REPLICAS_PASS;
  c->checked = t->step;
  c->count++;
  if (tsr_replica_check_run(c->check)) {
    c->passed = t->step;
    if (c->passed >= c->failed) c->failed = 0;
    return TSR_REPLICAS_PASS;
  }
  c->differing++;
  tsr_progress_clear(&t->progress);
  report(t, policy == TSR_VALIDATE_STOP ? TSR_FAILURE : TSR_WARNING);
  bool returned = policy == TSR_VALIDATE_RESUME && return_to_checkpoint(t);
  if (!returned) tsr_run_hashes_refresh(t);
  bool ok = returned || policy == TSR_VALIDATE_WARN;
  if (ok) tsr_diags_print(t->diags, stderr);
  if (!ok) return TSR_REPLICAS_FAIL;
  return returned ? TSR_REPLICAS_RETURN : TSR_REPLICAS_PASS;
}
