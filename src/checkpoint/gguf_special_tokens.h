// SPDX-License-Identifier: Apache-2.0
/* The special tokens of a tokenizer, as gguf-py's SpecialVocab finds them: in the template of
 * tokenizer.json, in tokenizer_config.json, and in the ids of generation_config.json. */
#ifndef TSR_CHECKPOINT_GGUF_SPECIAL_TOKENS_H
#define TSR_CHECKPOINT_GGUF_SPECIAL_TOKENS_H
#include "base/json.h"
#include "checkpoint/gguf_mapping.h"

enum { TSR_GGUF_SPECIAL_MAX = 16 };

typedef struct {
  struct {
    const char *kind; /* "bos", "eos", … */
    uint32_t id;
  } ids[TSR_GGUF_SPECIAL_MAX];
  int ids_count;
  struct {
    const char *kind;
    bool added; /* to a text */
  } flags[TSR_GGUF_SPECIAL_MAX];
  int flags_count;
  bool has_prefix, prefix; /* whether a text gets a space in front; not of all architectures */
  struct {
    bool has, value;
  } lowercase, strip_accents; /* of the normalizer */
} tsr_gguf_special_tokens;

/* `config` (tokenizer_config.json) and `generation` may be NULL. `writes_flags`: bos and eos have
 * a flag even where no file says anything. Ids from `ids_end` (0: none) on are left out. */
bool tsr_gguf_special_tokens_read(
    tsr_arena *arena, const tsr_gguf_mapping *mapping, const cJSON *json, const cJSON *config,
    const cJSON *generation, bool writes_flags, int64_t ids_end, tsr_gguf_special_tokens *ret,
    tsr_diags *diags);
/* Whether a flag ("bos") is set; `otherwise`: what it is where the file has none. */
bool tsr_gguf_special_tokens_flag(
    const tsr_gguf_special_tokens *special, const char *kind, bool otherwise);
void tsr_gguf_special_tokens_add_prefix(
    const tsr_gguf_special_tokens *special, tsr_gguf_metadata *metadata);
/* Ids and flags. */
void tsr_gguf_special_tokens_add(
    tsr_arena *arena, const tsr_gguf_special_tokens *special, tsr_gguf_metadata *metadata);
/* Which lie behind the chat template. */
void tsr_gguf_special_tokens_add_normalizer(
    const tsr_gguf_special_tokens *special, tsr_gguf_metadata *metadata);

#endif
