// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_side_files.h"
#include "base/file_read.h"
#include "tokenizer/subword.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_MAX = 1 << 28 };

static const char generation_name[] = "generation_config.json";
static const char *const id_keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
enum { ID_KEYS = sizeof id_keys / sizeof *id_keys };

/* NULL for a file that does not exist. Files of a model folder may be links, as in the cache of
 * huggingface_hub; those of a checkpoint are none. */
static bool read_json(
    tsr_arena *arena, const char *folder, const char *name, bool links, cJSON **ret_json,
    tsr_diags *diags) {
  const char *path = tsr_path_join(arena, folder, name);
  char *text;
  size_t length;
  *ret_json = NULL;
  if (!tsr_file_exists(path)) return true;
  bool (*read)(tsr_arena *, const char *, size_t, tsr_location, char **, size_t *, tsr_diags *) =
      links ? tsr_file_read_regular : tsr_file_read_nofollow;
  if (!read(arena, path, BYTES_MAX, TSR_NOWHERE, &text, &length, diags) ||
      !tsr_json_parse(arena, path, text, length, ret_json, diags))
    return false;
  return cJSON_IsObject(*ret_json) ||
         tsr_diag_error(diags, TSR_NOWHERE, "'%s' holds no JSON object", path);
}

/* That an existing file is a regular one. */
static bool check_kind(const char *path, tsr_diags *diags) {
  int fd = tsr_file_exists(path) ? tsr_file_open(path, 0) : -1;
  if (fd >= 0) close(fd);
  return fd >= 0 || !tsr_file_exists(path) ||
         tsr_file_cannot("read", path, errno, TSR_NOWHERE, diags);
}

/* ---- the tokenizer ---- */

/* A model whose texts cannot be read is one to evaluate and to train on tokens all the same. */
static bool
read_tokenizer(tsr_arena *arena, const char *folder, int64_t vocab_size, tsr_diags *diags) {
  const char *path = tsr_path_join(arena, folder, tsr_hf_side_files[0]);
  const char *pieces = tsr_path_join(arena, folder, "tokenizer.model");
  tsr_diags *errors = tsr_diags_new(arena);
  tsr_subword *subword;
  if (!tsr_file_exists(path)) {
    if (tsr_file_exists(pieces))
      tsr_diag_warning(
          diags, TSR_NOWHERE,
          "'%s' is SentencePiece's, which is not read: the model reads token numbers, no texts",
          pieces);
    return false;
  }
  if (!tsr_subword_read(arena, path, TSR_NOWHERE, &subword, errors)) {
    tsr_diag_warning(
        diags, TSR_NOWHERE, "'%s' cannot be used, so the model reads token numbers, no texts: %s",
        path, tsr_diags_first_error(errors));
    return false;
  }
  if (tsr_subword_vocab_size(subword) > vocab_size)
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' has %d tokens, the model %" PRId64
        ": it cannot be used, so the model reads token numbers, no texts",
        path, tsr_subword_vocab_size(subword), vocab_size);
  return tsr_subword_vocab_size(subword) <= vocab_size;
}

/* ---- ids of special tokens ---- */

/* transformers has numbers of its own for models that name none, and -1 for none. */
static void
check_id(const cJSON *id, const char *key, const char *path, int64_t vocab_size, tsr_diags *diags) {
  bool whole = cJSON_IsNumber(id) && id->valuedouble == floor(id->valuedouble);
  if (cJSON_IsNull(id) || (whole && id->valuedouble >= -1 && id->valuedouble < (double)vocab_size))
    return;
  if (whole)
    tsr_diag_warning(
        diags, TSR_NOWHERE, "'%s': %s %.0f is not in the vocabulary of %" PRId64 " tokens", path,
        key, id->valuedouble, vocab_size);
  else tsr_diag_warning(diags, TSR_NOWHERE, "'%s': %s is not the number of a token", path, key);
}

static void check_ids(const cJSON *object, const char *path, int64_t vocab_size, tsr_diags *diags) {
  for (int i = 0; i < ID_KEYS; i++) {
    const cJSON *id = tsr_json_get(object, id_keys[i]), *one;
    if (!id) continue;
    if (!cJSON_IsArray(id)) check_id(id, id_keys[i], path, vocab_size, diags);
    else cJSON_ArrayForEach(one, id) check_id(one, id_keys[i], path, vocab_size, diags);
  }
}

/* Adds those that config.json alone has; whether there was any. */
static bool add_ids(const cJSON *config, cJSON *generation) {
  bool added = false;
  for (int i = 0; i < ID_KEYS; i++) {
    const cJSON *id = tsr_json_get(config, id_keys[i]);
    bool there = tsr_json_get(generation, id_keys[i]) != NULL;
    if (there || !(cJSON_IsNumber(id) || cJSON_IsArray(id))) continue;
    cJSON_AddItemToObject(generation, id_keys[i], cJSON_Duplicate(id, true));
    added = true;
  }
  return added;
}

static bool read_generation(
    tsr_arena *arena, tsr_hf_sides *s, const cJSON *config, int64_t vocab_size, tsr_diags *diags) {
  cJSON *read;
  if (!read_json(arena, s->folder, generation_name, true, &read, diags)) return false;
  check_ids(config, tsr_path_join(arena, s->folder, "config.json"), vocab_size, diags);
  if (read) check_ids(read, tsr_path_join(arena, s->folder, generation_name), vocab_size, diags);
  cJSON *generation = read ? cJSON_Duplicate(read, true) : cJSON_CreateObject();
  if (cJSON_IsObject(generation) && add_ids(config, generation)) {
    char *text = cJSON_Print(generation);
    s->generation = tsr_arena_strdup(arena, text);
    cJSON_free(text);
  }
  cJSON_Delete(generation);
  return true;
}

bool tsr_hf_ends(
    tsr_arena *arena, const char *folder, int64_t vocab_size, int most, int32_t *ret_ids,
    int *ret_count, tsr_diags *diags) {
  cJSON *generation;
  *ret_count = 0;
  if (!read_json(arena, folder, generation_name, false, &generation, diags)) return false;
  const cJSON *ids = tsr_json_get(generation, "eos_token_id");
  const cJSON *one = cJSON_IsArray(ids) ? ids->child : ids;
  for (; one && *ret_count < most; one = cJSON_IsArray(ids) ? one->next : NULL)
    if (cJSON_IsNumber(one) && one->valuedouble >= 0 && one->valuedouble < (double)vocab_size)
      ret_ids[(*ret_count)++] = (int32_t)one->valuedouble;
  return true;
}

bool tsr_hf_padding(
    tsr_arena *arena, const char *folder, int64_t vocab_size, int64_t *ret_id, tsr_diags *diags) {
  cJSON *generation;
  *ret_id = -1;
  if (!read_json(arena, folder, generation_name, false, &generation, diags)) return false;
  const cJSON *id = tsr_json_get(generation, "pad_token_id");
  if (cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < (double)vocab_size)
    *ret_id = (int64_t)id->valuedouble;
  return true;
}

/* ---- all of it ---- */

void tsr_hf_warn_of_templates(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  const char *path = tsr_path_join(arena, folder, "additional_chat_templates");
  if (tsr_file_exists(path))
    tsr_diag_warning(
        diags, TSR_NOWHERE,
        "'%s' is not copied: the checkpoint has the default chat template alone, also for "
        "conversations with tools",
        path);
}

bool tsr_hf_sides_read(
    tsr_arena *arena, const char *folder, const cJSON *config, int64_t vocab_size,
    tsr_hf_sides *ret, tsr_diags *diags) {
  *ret = (tsr_hf_sides){.folder = folder};
  if (!check_kind(tsr_path_join(arena, folder, tsr_hf_side_files[0]), diags)) return false;
  for (int i = 1; tsr_hf_side_files[i]; i++) {
    cJSON *json;
    if (tsr_path_ends(tsr_hf_side_files[i], ".json") &&
        !read_json(arena, folder, tsr_hf_side_files[i], true, &json, diags))
      return false;
  }
  tsr_hf_warn_of_templates(arena, folder, diags);
  ret->reads_text = read_tokenizer(arena, folder, vocab_size, diags);
  return read_generation(arena, ret, config, vocab_size, diags);
}

bool tsr_hf_sides_write(
    tsr_arena *arena, const tsr_hf_sides *sides, tsr_checkpoint_writer *output, tsr_diags *diags) {
  const char *generation = sides->generation;
  for (int i = 0; tsr_hf_side_files[i]; i++) {
    const char *name = tsr_hf_side_files[i], *path = tsr_path_join(arena, sides->folder, name);
    bool is_made = generation && !strcmp(name, generation_name);
    if (!is_made && tsr_file_exists(path) &&
        !tsr_checkpoint_writer_copy(output, name, path, 0, diags))
      return false;
  }
  return !generation || tsr_checkpoint_writer_bytes(
                            output, generation_name, generation, strlen(generation), diags);
}
