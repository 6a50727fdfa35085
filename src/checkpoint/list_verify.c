// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_commands.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include <math.h>
#include <string.h>
#include <time.h>

static void add_time(tsr_text *text, int64_t seconds) {
  char at[32];
  time_t t = (time_t)seconds;
  struct tm parts;
  gmtime_r(&t, &parts);
  strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &parts);
  tsr_text_add(text, "%s UTC", at);
}

static void add_loss(tsr_text *text, double loss) {
  if (isfinite(loss)) tsr_text_add(text, "%.4f", loss);
  else tsr_text_add(text, "none");
}

bool tsr_checkpoint_ls(tsr_arena *arena, const char *folder, tsr_text *text, tsr_diags *diags) {
  tsr_checkpoint_entry *entries;
  int count;
  if (!tsr_checkpoints_list(arena, folder, &entries, &count, diags)) return false;
  const char *below = tsr_path_join(arena, folder, "checkpoints");
  if (!count && !tsr_checkpoints_list(arena, below, &entries, &count, diags)) return false;
  tsr_checkpoint_entry alone = {0, folder};
  if (!count && tsr_file_exists(tsr_path_join(arena, folder, TSR_MANIFEST_NAME)))
    entries = &alone, count = 1;
  if (!count) return tsr_diag_error(diags, TSR_NOWHERE, "there is no checkpoint in '%s'", folder);
  tsr_text_add(text, "%10s  %10s  %10s  %-23s  folder\n", "step", "loss", "size", "written");
  bool ok = true;
  for (int i = 0; i < count; i++) {
    tsr_manifest m;
    if (!tsr_file_exists(tsr_path_join(arena, entries[i].path, TSR_MANIFEST_NAME))) {
      ok = tsr_diag_failure(
          diags, TSR_NOWHERE, "'%s' is damaged: it has no %s", entries[i].path, TSR_MANIFEST_NAME);
      continue;
    }
    if (!tsr_manifest_read(arena, entries[i].path, TSR_NOWHERE, &m, diags)) {
      ok = false;
      continue;
    }
    tsr_text_add(text, "%10lld  ", (long long)m.state.step);
    if (isfinite(m.state.loss)) tsr_text_add(text, "%10.4f  ", m.state.loss);
    else tsr_text_add(text, "%10s  ", "none");
    tsr_text_add(text, "%10s  ", tsr_text_bytes(tsr_manifest_bytes(&m)).text);
    add_time(text, m.time);
    tsr_text_add(text, "  %s%s%s\n", entries[i].path, m.tag ? "  " : "", m.tag ? m.tag : "");
  }
  return ok;
}

static void show_state(const tsr_manifest *m, tsr_text *text) {
  const tsr_run_state *s = &m->state;
  tsr_text_add(text, "checkpoint: %s\n", m->folder);
  if (m->tag) tsr_text_add(text, "tag: %s\n", m->tag);
  tsr_text_add(text, "step: %lld", (long long)s->step);
  if (s->updates != s->step) tsr_text_add(text, ", of them %lld updates", (long long)s->updates);
  tsr_text_add(text, "\nsamples: %lld\nloss: ", (long long)s->samples);
  add_loss(text, s->loss);
  if (s->has_scale)
    tsr_text_add(
        text, "\nloss scale: %g, %lld good steps since it changed", (double)s->scale,
        (long long)s->scale_good_steps);
  for (int i = 0; i < s->validation.best_count; i++)
    tsr_text_add(
        text, "%sstep %lld, %.4f",
        i ? "; " : "\nbest validation losses: ", (long long)s->validation.best[i].step,
        s->validation.best[i].loss);
  tsr_text_add(text, "\noptimizer state: %s\nwritten: ", m->has_state ? "yes" : "no");
  add_time(text, m->time);
  if (m->version) tsr_text_add(text, ", by tessera-train %s", m->version);
  if (m->mesh) tsr_text_add(text, ", on %s", m->mesh);
  tsr_text_add(text, "\n");
}

void tsr_checkpoint_show(const tsr_manifest *m, tsr_text *text) {
  show_state(m, text);
  char hash[TSR_HASH_TEXT];
  tsr_recipe_hash(m->recipe, m->recipe_count, hash);
  if (m->recipe_count) tsr_text_add(text, "recipe: %s\n", hash);
  for (int i = 0; i < m->recipe_count; i++)
    tsr_text_add(text, "  %s: %s\n", m->recipe[i].key, m->recipe[i].value);
  tsr_text_add(text, "files: %s\n", tsr_text_bytes(tsr_manifest_bytes(m)).text);
  for (int i = 0; i < m->files_count; i++)
    tsr_text_add(text, "  %12s  %s\n", tsr_text_bytes(m->files[i].bytes).text, m->files[i].name);
  tsr_text_add(text, "tensors: %d\n", m->tensors_count);
  for (int i = 0; i < m->tensors_count; i++) {
    const tsr_stored *t = &m->tensors[i];
    tsr_text_add(
        text, "  %s %s %s", t->name, tsr_dtype_name(t->dtype),
        tsr_shape_text(t->ndim, t->shape).text);
    if (t->pieces_count > 1) tsr_text_add(text, " in %d pieces", t->pieces_count);
    tsr_text_add(text, "\n");
  }
}

bool tsr_checkpoint_verify(
    tsr_arena *arena, const tsr_manifest *m, tsr_text *text, tsr_diags *diags) {
  tsr_checkpoint_reader *in;
  if (!tsr_checkpoint_reader_open(arena, m, false, &in, diags)) return false;
  bool ok = tsr_checkpoint_reader_verify(in, diags);
  tsr_checkpoint_reader_close(in);
  if (ok)
    tsr_text_add(
        text, "%s: step %lld, %d tensors in %d files, %s: all hashes agree\n", m->folder,
        (long long)m->state.step, m->tensors_count, m->files_count,
        tsr_text_bytes(tsr_manifest_bytes(m)).text);
  return ok;
}
