// SPDX-License-Identifier: Apache-2.0
#include "train/label_data.h"
#include "base/file_read.h"
#include "data/padding_token.h"
#include "train/data_paths.h"
#include <inttypes.h>

/* ---- classes ---- */

/* num_labels of the model's file: the graph is not read yet. 0: it has none, or a number that no
 * classes have, which the graph's checks refuse. */
static int64_t classes_of_model(const tsr_config *c) {
  int64_t count = 0;
  const tsr_yaml *node = c->model.map ? tsr_yaml_get(c->model.map, "num_labels") : NULL;
  bool known = node && tsr_yaml_int(node, &count) && count >= 2 && count <= TSR_CLASSES_MAX;
  return known ? count : 0;
}

static tsr_location place_of_classes(const tsr_config *c) {
  return tsr_yaml_get(c->model.map, "num_labels")->location;
}

/* Files that cannot be read are reported when they are encoded. */
static bool collect(
    tsr_arena *arena, const tsr_data_input *input, tsr_label_collector *names, tsr_diags *diags) {
  const char **paths;
  int count;
  if (!tsr_text_files_find(arena, input->path, input->location, &paths, &count, diags))
    return false;
  for (int i = 0; i < count; i++) {
    tsr_file_map map;
    if (!tsr_text_file_check(paths[i], input->location, diags) ||
        !tsr_file_map_open(paths[i], 0, input->location, &map, diags))
      return false;
    tsr_label_names_collect(names, &(tsr_text_file){paths[i], map.bytes, map.length});
    bool ok = tsr_file_maps_check(diags);
    tsr_file_map_close(&map);
    if (!ok) return false;
  }
  return true;
}

/* The names that are too many are those that come last. */
static bool too_many(
    const tsr_config *c, const tsr_data_options *o, const tsr_label_collector *names,
    tsr_diags *diags) {
  int beyond = names->count - names->most;
  tsr_label_names last = {names->beyond, beyond};
  const char *list = tsr_label_names_list(names->arena, &last);
  if (classes_of_model(c) && names->count <= TSR_CLASSES_MAX)
    tsr_diag_error(
        diags, place_of_classes(c), "num_labels is %d, but the data have labels of %d names",
        names->most, names->count);
  else
    tsr_diag_error(
        diags, o->inputs[0].location, "the data have labels of more than %d names", names->most);
  tsr_diag_hint(
      diags, "'%s', line %d has the first of the names beyond %d: %s", names->beyond_file,
      names->beyond_line, names->most, list);
  return false;
}

static bool
too_few(const tsr_config *c, const tsr_label_collector *names, int64_t model, tsr_diags *diags) {
  tsr_label_names all = {names->items, names->count};
  tsr_diag_error(
      diags, place_of_classes(c),
      "num_labels is %" PRId64 ", but the data have labels of %d name%s: %s", model, names->count,
      names->count == 1 ? "" : "s", tsr_label_names_list(names->arena, &all));
  tsr_diag_hint(diags, "data.labels: [NAME, …] has names that no line has, too");
  return false;
}

/* What the model tells apart is what the data have. */
static bool sort_names(
    tsr_arena *arena, const tsr_config *c, const tsr_data_options *o, tsr_label_format *format,
    tsr_diags *diags) {
  int64_t model = classes_of_model(c);
  tsr_label_collector names = {.arena = arena, .most = model ? (int)model : TSR_CLASSES_MAX};
  for (int i = 0; i < o->inputs_count; i++)
    if (!collect(arena, &o->inputs[i], &names, diags)) return false;
  if (o->validation && !collect(arena, o->validation, &names, diags)) return false;
  if (!names.count) return true;
  if (names.count > names.most) return too_many(c, o, &names, diags);
  if (names.count < model) return too_few(c, &names, model, diags);
  format->labels = (tsr_label_names){names.items, names.count};
  format->are_sorted = true;
  return true;
}

static bool
declare_names(tsr_arena *arena, const tsr_config *c, tsr_label_format *format, tsr_diags *diags) {
  const tsr_config_names *names = &c->data.labels;
  int64_t model = classes_of_model(c);
  const char **items = tsr_arena_array(arena, const char *, names->count);
  for (int i = 0; i < names->count; i++) items[i] = names->items[i].text;
  format->labels = (tsr_label_names){items, names->count};
  return !model || names->count == model ||
         tsr_diag_error(
             diags, place_of_classes(c), "num_labels is %" PRId64 ", but data.labels has %d names",
             model, names->count);
}

static bool find_classes(
    tsr_arena *arena, const tsr_config *c, const tsr_data_options *o, tsr_label_format *format,
    tsr_diags *diags) {
  bool ok = c->data.labels.count ? declare_names(arena, c, format, diags)
                                 : sort_names(arena, c, o, format, diags);
  if (ok && !format->labels.names) format->labels.count = (int)classes_of_model(c);
  return ok;
}

/* ---- opening ---- */

static bool check_tokenizer(const tsr_config *c, const tsr_tokenizer *t, tsr_diags *diags) {
  bool counts = t->kind == TSR_TOKENIZER_CHAR && !t->chars;
  if (!counts && t->kind != TSR_TOKENIZER_IDS) return true;
  tsr_diag_error(
      diags, tsr_config_location(c, "data.format"),
      "labelled texts need a tokenizer: training_config.tokenizer_path is not given");
  tsr_diag_hint(diags, "with tokenizer_type: bpe a tokenizer.json; type byte needs no file");
  return false;
}

/* Here a text's last token is the one that has its label, whatever it is. */
static void
warn_of_padding(const tsr_config *c, const tsr_tokenizer *t, int32_t padding, tsr_diags *diags) {
  if (!tsr_padding_ends_texts(t, padding)) return;
  tsr_diag_warning(
      diags, tsr_config_location(c, "training_config.tokenizer_path"),
      "texts end with token %d, which is the padding, too: transformers scores their classes at "
      "the token before it",
      padding);
  tsr_diag_hint(diags, "give the tokenizer a pad_token of its own");
}

bool tsr_label_data_open(
    tsr_arena *arena, const tsr_config *c, const tsr_data_options *options,
    const char *tokenizer_file, tsr_dataset *ret, tsr_diags *diags) {
  tsr_label_format *format = tsr_arena_alloc(arena, sizeof *format);
  const char *folder = tokenizer_file ? tsr_path_folder(arena, tokenizer_file) : NULL;
  int32_t padding;
  *format = (tsr_label_format){.tokenizer = options->tokenizer};
  *ret = (tsr_dataset){0};
  if (!check_tokenizer(c, &options->tokenizer, diags) ||
      !tsr_padding_token(arena, folder, &options->tokenizer, &padding, diags) ||
      !find_classes(arena, c, options, format, diags))
    return false;
  warn_of_padding(c, &options->tokenizer, padding, diags);
  tsr_line_sources lines = {
      .inputs = options->inputs,
      .inputs_count = options->inputs_count,
      .validation = options->validation,
      .tokenizer = options->tokenizer,
      .encoder = tsr_labelled_text_encoder(format),
      .labels = format->labels,
      .threads = (int)c->numerics.threads};
  lines.packing = (tsr_packing_rule){
      .best_fit = c->data.packing == TSR_PACKING_BEST_FIT,
      .drops = c->data.too_long == TSR_TOO_LONG_DROP,
      .padding = padding < 0 ? 0 : padding};
  return tsr_dataset_lines(arena, &lines, ret, diags);
}

void tsr_label_data_keep(tsr_arena *arena, const tsr_dataset *dataset, tsr_config *c) {
  const tsr_label_names *labels = &dataset->labels;
  if (!labels->names || c->data.labels.count) return;
  tsr_config_name *items = tsr_arena_array(arena, tsr_config_name, labels->count);
  for (int i = 0; i < labels->count; i++) items[i] = (tsr_config_name){.text = labels->names[i]};
  c->data.labels = (tsr_config_names){.items = items, .count = labels->count};
}
