// SPDX-License-Identifier: Apache-2.0
/* The command `export`: to model folders of Hugging Face, to GGUF, and adapter folders of PEFT. */
#include "cli/trained_model.h"
#include "base/file_read.h"
#include "checkpoint/gguf_export.h"
#include "checkpoint/reader.h"
#include "train/adapter_files.h"
#include "train/resume_recipe.h"
#include <string.h>

typedef struct {
  app *a;
  tsr_manifest from, base;
  tsr_checkpoint_hold from_hold, base_hold; /* until the process ends */
  tsr_config *config;
  tsr_adapted_model model;
  tsr_trained_values values;
  bool gguf; /* --format gguf */
} exporting;

static bool choose_format(exporting *e) {
  static const char *const names[] = {"hf", "gguf"};
  app *a = e->a;
  const char *word = a->options.format ? a->options.format : names[0];
  e->gguf = !strcmp(word, names[1]);
  if (e->gguf || !strcmp(word, names[0])) return true;
  tsr_diag_error(a->diags, TSR_NOWHERE, "--format: there is nothing called '%s'", word);
  tsr_diag_nearest(a->diags, word, names, 2);
  return false;
}

static bool load_config(exporting *e, const tsr_manifest *m) {
  app *a = e->a;
  if (!m->config)
    return tsr_diag_error(a->diags, TSR_NOWHERE, "'%s' has no configuration", m->folder);
  const char *path = tsr_path_join(a->arena, m->folder, m->config);
  return tsr_config_load(a->arena, path, NULL, 0, &e->config, a->diags);
}

static bool read_model(exporting *e, const tsr_manifest *weights) {
  app *a = e->a;
  const tsr_stored *wte = tsr_manifest_find(weights, "wte");
  int64_t vocab = wte && wte->ndim ? wte->shape[0] : 0;
  if (!tsr_adapted_model_read(
          a->arena, e->config, vocab, app_graphs_folder(a), &e->model, a->diags))
    return false;
  e->values = tsr_trained_values_new(a->arena, e->model.graph);
  return true;
}

static bool export_model(exporting *e, const char *weights, const char *what) {
  app *a = e->a;
  tsr_hf_export_options o = {.graphs_folder = app_graphs_folder(a), .dtype = a->options.dtype};
  o.config = e->config;
  if (e->values.values) o.changes = tsr_adapted_changes(a->arena, &e->values, &o.changes_count);
  if (e->gguf) {
    if (!tsr_gguf_export(a->arena, weights, a->options.out, &o, a->diags)) return false;
  } else {
    if (!tsr_hf_export(a->arena, weights, a->options.out, &o, a->diags)) return false;
    console_note_tokenizer(a);
  }
  if (!a->options.quiet)
    printf(
        "%s: a %s of '%s'%s\n", a->options.out, e->gguf ? "GGUF file" : "model folder", weights,
        what);
  return true;
}

/* --adapter DIR: of a model and PEFT's adapters. */
static bool merge_folder(exporting *e) {
  app *a = e->a;
  const char *folder = a->options.adapter;
  if (!trained_model_check_whole(a, &e->from, TSR_NOWHERE) || !load_config(e, &e->from) ||
      !tsr_peft_config_read(a->arena, folder, TSR_NOWHERE, &e->config->lora, a->diags) ||
      !read_model(e, &e->from) ||
      !tsr_peft_read(a->arena, folder, TSR_NOWHERE, &e->values, a->diags))
    return false;
  const char *what = tsr_arena_printf(a->arena, " with the adapters of '%s'", folder);
  return export_model(e, a->options.arguments.items[0], what);
}

/* The model that a run's adapters go with. */
static bool find_base(exporting *e) {
  app *a = e->a;
  const char *path = e->config->training.model_path;
  tsr_location location = tsr_config_location(e->config, "training_config.model_path");
  if (!*path)
    return tsr_diag_error(
        a->diags, location,
        "the adapters of '%s' were trained on random weights, which no file has", e->from.folder);
  return tsr_checkpoint_find_held(a->arena, path, location, &e->base, &e->base_hold, a->diags) &&
         trained_model_check_whole(a, &e->base, location);
}

static bool check_base(exporting *e) {
  app *a = e->a;
  const char *there = tsr_recipe_value(&e->from, TSR_RECIPE_WEIGHTS);
  const char *here = tsr_resume_recipe_hash(a->arena, &e->base, e->model.graph);
  if (there && !strcmp(there, here)) return true;
  return tsr_diag_error(
      a->diags, tsr_config_location(e->config, "training_config.model_path"),
      "the adapters of '%s' were trained with other weights than those of '%s'", e->from.folder,
      e->base.folder);
}

/* --merge: of a run's adapters and their model. */
static bool merge_run(exporting *e) {
  app *a = e->a;
  if (!find_base(e) || !read_model(e, &e->base) || !check_base(e) ||
      !tsr_trained_values_read(a->arena, &e->from, &e->values, a->diags))
    return false;
  const char *what = tsr_arena_printf(a->arena, " with the adapters of '%s'", e->from.folder);
  return export_model(e, e->base.folder, what);
}

/* Whether the tokens of the model are counted in its embedding, which adapters alone do not have.
 */
static bool needs_base(const exporting *e) {
  const tsr_yaml *size = tsr_yaml_get(e->config->model.map, "vocab_size");
  int64_t given;
  return *e->config->training.model_path && !tsr_manifest_find(&e->from, "wte") &&
         !(size && tsr_yaml_int(size, &given) && given > 0);
}

/* PEFT's folder of a run's adapters. */
static bool export_adapters(exporting *e) {
  app *a = e->a;
  const tsr_manifest *weights = &e->from;
  if (e->gguf)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "'%s' has adapters, which a GGUF file has merged: --merge does that",
        e->from.folder);
  if (a->options.dtype)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "--dtype goes with a model: adapters are exported in f32");
  if (!tsr_config_require_model(e->config, a->diags)) return false;
  if (needs_base(e)) {
    if (!find_base(e)) return false;
    weights = &e->base;
  }
  if (!read_model(e, weights) ||
      !tsr_trained_values_read(a->arena, &e->from, &e->values, a->diags) ||
      !tsr_adapted_write(a->arena, &e->model, &e->values, a->options.out, a->diags))
    return false;
  if (!a->options.quiet)
    printf("%s: the adapters of '%s', in PEFT's format\n", a->options.out, e->from.folder);
  return true;
}

static bool run(exporting *e) {
  app *a = e->a;
  const char *from = a->options.arguments.items[0];
  if (!console_require_out(a) || !choose_format(e) ||
      !tsr_checkpoint_find_held(a->arena, from, TSR_NOWHERE, &e->from, &e->from_hold, a->diags) ||
      !tsr_checkpoint_reader_check_sides(a->arena, &e->from, a->diags))
    return false;
  if (a->options.adapter) return merge_folder(e);
  if (!tsr_manifest_has_adapters(&e->from))
    return a->options.merge
               ? tsr_diag_error(
                     a->diags, TSR_NOWHERE, "--merge: '%s' has no adapters", e->from.folder)
               : export_model(e, from, "");
  if (!load_config(e, &e->from)) return false;
  return a->options.merge ? merge_run(e) : export_adapters(e);
}

int app_run_export(app *a) {
  exporting e = {.a = a};
  app_stop_files_on_signals(a);
  return console_finish_stoppable(a, run(&e));
}
