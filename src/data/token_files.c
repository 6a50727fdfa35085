// SPDX-License-Identifier: Apache-2.0
#include "data/token_files.h"
#include "base/file_read.h"
#include "data/text_check.h"
#include "data/tt_train_tokens.h"
#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are read as they lie");

typedef struct {
  tsr_arena *arena;
  const char *path;
  tsr_location location;
  tsr_diags *diags;
} opener;

const char *tsr_token_format_name(tsr_token_format format) {
  static const char *const names[] = {"auto",        "text",     "llmc",    "nanogpt_u16",
                                      "nanogpt_u32", "megatron", "tt_train"};
  return names[format];
}

void tsr_token_file_close(tsr_token_file *file) {
  for (int i = 0; i < 2; i++) tsr_file_map_close(&file->maps[i]);
}

/* ---- formats ---- */

/* The file of a Megatron pair with this ending, of a name that may have the other or none. */
static const char *pair_path(tsr_arena *arena, const char *path, const char *ending) {
  size_t length = strlen(path);
  if (tsr_path_ends(path, ".bin") || tsr_path_ends(path, ".idx")) length -= 4;
  return tsr_arena_printf(arena, "%.*s%s", (int)length, path, ending);
}

static bool is_yaml(const char *path) {
  return tsr_path_ends(path, ".yaml") || tsr_path_ends(path, ".yml");
}

bool tsr_token_file_is(tsr_arena *arena, const char *path) {
  if (tsr_path_ends(path, ".bin") || tsr_path_ends(path, ".idx") || is_yaml(path)) return true;
  return !tsr_file_exists(path) && tsr_file_exists(pair_path(arena, path, ".idx")) &&
         tsr_file_exists(pair_path(arena, path, ".bin"));
}

static int32_t word_at(const tsr_file_map *m, size_t at) {
  int32_t word = 0;
  if (m->length >= at + sizeof word) memcpy(&word, (const char *)m->bytes + at, sizeof word);
  return word;
}

static bool open_llmc(const opener *o, tsr_file_map m, tsr_token_file *file) {
  int32_t magic = word_at(&m, 0), version = word_at(&m, 4), tokens = word_at(&m, 8);
  if (magic != TSR_LLMC_MAGIC_U16 && magic != TSR_LLMC_MAGIC_U32)
    return tsr_diag_error(
        o->diags, o->location,
        "'%s' is no token file of llm.c: it begins with %d, not with %d (16-bit tokens) or %d "
        "(32-bit ones)",
        o->path, magic, TSR_LLMC_MAGIC_U16, TSR_LLMC_MAGIC_U32);
  if (m.length < TSR_LLMC_HEADER_BYTES)
    return tsr_diag_error(
        o->diags, o->location, "'%s' is cut off: it ends at byte %zu, in its header of %d bytes",
        o->path, m.length, TSR_LLMC_HEADER_BYTES);
  file->type = magic == TSR_LLMC_MAGIC_U16 ? TSR_TOKEN_U16 : TSR_TOKEN_U32;
  int known = magic == TSR_LLMC_MAGIC_U16 ? 1 : 7;
  if (version != known)
    return tsr_diag_error(
        o->diags, o->location, "'%s', byte 4: version %d of llm.c's format %d; read is version %d",
        o->path, version, magic, known);
  if (tokens < 0)
    return tsr_diag_error(
        o->diags, o->location, "'%s', byte 8: the header speaks of %d tokens", o->path, tokens);
  int64_t end = TSR_LLMC_HEADER_BYTES + tokens * tsr_token_bytes(file->type);
  if ((int64_t)m.length != end)
    return tsr_diag_error(
        o->diags, o->location,
        "'%s' %s at byte %zu, but its header speaks of %d tokens of %lld bytes, which end at byte "
        "%lld",
        o->path, (int64_t)m.length < end ? "is cut off: it ends" : "ends", m.length, tokens,
        (long long)tsr_token_bytes(file->type), (long long)end);
  file->tokens = (const char *)m.bytes + TSR_LLMC_HEADER_BYTES;
  file->begin_bytes = TSR_LLMC_HEADER_BYTES;
  file->count = tokens;
  return true;
}

static bool open_nanogpt(const opener *o, tsr_file_map m, tsr_token_file *file) {
  file->type = file->format == TSR_TOKEN_FILE_NANOGPT_U16 ? TSR_TOKEN_U16 : TSR_TOKEN_U32;
  size_t width = (size_t)tsr_token_bytes(file->type), over = m.length % width;
  if (over)
    return tsr_diag_error(
        o->diags, o->location,
        "'%s' is cut off: its %zu bytes end in a token of %zu bytes, which begins at byte %zu",
        o->path, m.length, width, m.length - over);
  file->tokens = m.bytes;
  file->count = (int64_t)(m.length / width);
  return true;
}

static bool open_megatron(const opener *o, tsr_file_map m, tsr_token_file *file) {
  const char *path = pair_path(o->arena, o->path, ".idx");
  tsr_file_map *index = &file->maps[1];
  if (!tsr_file_map_open(path, 0, o->location, index, o->diags)) return false;
  tsr_megatron_index *read = tsr_arena_array(o->arena, tsr_megatron_index, 1);
  if (!tsr_megatron_index_read(path, index->bytes, index->length, o->location, read, o->diags))
    return false;
  int64_t end = read->tokens * tsr_token_bytes(read->type);
  if ((int64_t)m.length != end)
    return tsr_diag_error(
        o->diags, o->location, "'%s' %s at byte %zu, but the sequences of '%s' end at byte %lld",
        o->path, (int64_t)m.length < end ? "is cut off: it ends" : "ends", m.length, path,
        (long long)end);
  file->index = read;
  file->type = read->type;
  file->tokens = m.bytes;
  file->count = read->tokens;
  return true;
}

/* ---- which format ---- */

/* Whether 16-bit tokens would be zeros every other time, as the upper halves of 32-bit ones are. */
static bool looks_wide(const tsr_file_map *m) {
  const uint16_t *tokens = m->bytes;
  size_t count = m->length / 2 < 4096 ? m->length / 2 : 4096;
  bool lower = false;
  if (m->length % 4 || count < 16) return false;
  for (size_t i = 0; i + 1 < count; i += 2) {
    lower |= tokens[i] != 0;
    if (tokens[i + 1]) return false;
  }
  return lower;
}

static bool ask_for_format(const opener *o, const char *why) {
  tsr_diag_error(
      o->diags, o->location, "'%s' has no header with the size of its tokens%s", o->path, why);
  tsr_diag_hint(
      o->diags, "write data_format: nanogpt_u16 for tokens of 2 bytes, nanogpt_u32 for 4");
  return false;
}

static bool find_headerless(
    const opener *o, const tsr_file_map *m, int64_t vocab_size, tsr_token_format *ret_format) {
  *ret_format = vocab_size > 65536 ? TSR_TOKEN_FILE_NANOGPT_U32 : TSR_TOKEN_FILE_NANOGPT_U16;
  tsr_text_file bytes = {.path = o->path, .text = m->bytes, .length = m->length};
  if (!tsr_content_check_tokens(&bytes, o->location, o->diags)) return false;
  if (!vocab_size) return ask_for_format(o, ", and the size of the vocabulary is not known");
  if (vocab_size <= 65536 && looks_wide(m))
    return ask_for_format(
        o, ": the vocabulary would fit in 2 bytes, but every other token would be 0");
  return true;
}

static bool find_format(
    const opener *o, const tsr_file_map *m, int64_t vocab_size, tsr_token_format *ret_format) {
  static const struct {
    int32_t magic;
    const char *what;
  } others[] = {
      {20240326, "a checkpoint"}, {20240328, "a tokenizer"}, {20240522, "an evaluation set"}};
  int32_t magic = word_at(m, 0);
  for (int i = 0; i < 3; i++)
    if (magic == others[i].magic)
      return tsr_diag_error(
          o->diags, o->location, "'%s' is %s of llm.c (it begins with %d), not a token file",
          o->path, others[i].what, magic);
  if (tsr_file_exists(pair_path(o->arena, o->path, ".idx"))) *ret_format = TSR_TOKEN_FILE_MEGATRON;
  else if (magic == TSR_LLMC_MAGIC_U16 || magic == TSR_LLMC_MAGIC_U32)
    *ret_format = TSR_TOKEN_FILE_LLMC;
  else return find_headerless(o, m, vocab_size, ret_format);
  return true;
}

bool tsr_token_file_open(
    tsr_arena *arena, const char *path, tsr_token_format format, int64_t vocab_size,
    tsr_location location, tsr_token_file *ret_file, tsr_diags *diags) {
  assert(format != TSR_TOKEN_FILE_TEXT);
  bool paired = format == TSR_TOKEN_FILE_MEGATRON || tsr_path_ends(path, ".idx") ||
                (format == TSR_TOKEN_FILE_AUTO && !tsr_file_exists(path));
  if (format == TSR_TOKEN_FILE_TT_TRAIN || (format == TSR_TOKEN_FILE_AUTO && is_yaml(path))) {
    *ret_file =
        (tsr_token_file){.path = tsr_arena_strdup(arena, path), .format = TSR_TOKEN_FILE_TT_TRAIN};
    return tsr_tt_train_tokens_read(arena, ret_file->path, location, ret_file, diags);
  }
  opener o = {arena, paired ? pair_path(arena, path, ".bin") : path, location, diags};
  *ret_file = (tsr_token_file){.path = tsr_arena_strdup(arena, o.path)};
  o.path = ret_file->path;
  if (!tsr_file_map_open(o.path, 0, location, &ret_file->maps[0], diags)) return false;
  tsr_file_map m = ret_file->maps[0];
  bool ok = format != TSR_TOKEN_FILE_AUTO || find_format(&o, &m, vocab_size, &format);
  ret_file->format = format;
  if (ok && format == TSR_TOKEN_FILE_LLMC) ok = open_llmc(&o, m, ret_file);
  else if (ok && format == TSR_TOKEN_FILE_MEGATRON) ok = open_megatron(&o, m, ret_file);
  else if (ok) ok = open_nanogpt(&o, m, ret_file);
  if (!ok) tsr_token_file_close(ret_file);
  return ok;
}

/* ---- tokens outside the vocabulary ---- */

/* Loops of their own for each type, so that the compiler makes vectors of them. A negative i32 is
 * a large unsigned number. */
static uint32_t most_u16(const uint16_t *tokens, int64_t count) {
  uint16_t most = 0;
  for (int64_t i = 0; i < count; i++) most = tokens[i] > most ? tokens[i] : most;
  return most;
}

static uint32_t most_u32(const uint32_t *tokens, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; i++) most = tokens[i] > most ? tokens[i] : most;
  return most;
}

int64_t tsr_token_file_find_outside(
    const tsr_token_file *file, int64_t begin, int64_t count, int64_t vocab_size) {
  enum { BLOCK = 1 << 15 };
  bool narrow = file->type == TSR_TOKEN_U16;
  if (narrow && vocab_size > UINT16_MAX) return -1;
  for (int64_t at = begin, end = begin + count; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    uint32_t most = narrow ? most_u16((const uint16_t *)file->tokens + at, n)
                           : most_u32((const uint32_t *)file->tokens + at, n);
    if (most < vocab_size) continue;
    for (int64_t i = at; i < at + n; i++) {
      int64_t token = tsr_token_at(file, i);
      if (token < 0 || token >= vocab_size) return i;
    }
  }
  return -1;
}

bool tsr_token_file_outside(
    const tsr_token_file *file, int64_t token, int64_t vocab_size, tsr_location location,
    tsr_diags *diags) {
  char at[32] = "";
  if (file->format != TSR_TOKEN_FILE_TT_TRAIN)
    snprintf(
        at, sizeof at, ", byte %lld",
        (long long)(file->begin_bytes + token * tsr_token_bytes(file->type)));
  tsr_diag_error(
      diags, location, "'%s'%s: token %lld is %lld, but the vocabulary has %lld", file->path, at,
      (long long)token, (long long)tsr_token_at(file, token), (long long)vocab_size);
  if (file->format == TSR_TOKEN_FILE_NANOGPT_U16 || file->format == TSR_TOKEN_FILE_NANOGPT_U32)
    tsr_diag_hint(
        diags, "it was read as %s; data_format selects another format",
        tsr_token_format_name(file->format));
  return false;
}
