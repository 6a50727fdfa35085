// SPDX-License-Identifier: Apache-2.0
/* What stands beside the weights in a Hugging Face folder, and goes with them: the tokenizer, its
 * chat template, and generation_config.json with the ids of special tokens. */
#ifndef TSR_CHECKPOINT_HF_SIDE_FILES_H
#define TSR_CHECKPOINT_HF_SIDE_FILES_H
#include "base/json.h"
#include "checkpoint/folder_writer.h"
#include "checkpoint/owned_files.h"

typedef struct {
  const char *folder;
  bool reads_text;        /* there is a tokenizer that can be used */
  const char *generation; /* generation_config.json with the ids that config.json alone has; NULL:
                             the folder's own, if it has one */
} tsr_hf_sides;

/* Warns where a folder has templates that do not go with the weights: those of its subfolder
 * additional_chat_templates. */
void tsr_hf_warn_of_templates(tsr_arena *arena, const char *folder, tsr_diags *diags);

/* Reads what exists beside `config`, config.json. Warnings: a tokenizer that cannot be used, or
 * has more tokens than the model's `vocab_size`; ids outside it; templates that are not copied.
 * Errors: a file that is no JSON. */
bool tsr_hf_sides_read(
    tsr_arena *arena, const char *folder, const cJSON *config, int64_t vocab_size,
    tsr_hf_sides *ret_sides, tsr_diags *diags);
bool tsr_hf_sides_write(
    tsr_arena *arena, const tsr_hf_sides *sides, tsr_checkpoint_writer *output, tsr_diags *diags);

/* The tokens that end a text by the generation_config.json of a checkpoint's folder, at most `most`
 * of them; ids outside the vocabulary are left out. False where the file cannot be read. */
bool tsr_hf_ends(
    tsr_arena *arena, const char *folder, int64_t vocab_size, int most, int32_t *ret_ids,
    int *ret_count, tsr_diags *diags);

/* The pad_token_id of that file; -1: it has none in the vocabulary. */
bool tsr_hf_padding(
    tsr_arena *arena, const char *folder, int64_t vocab_size, int64_t *ret_id, tsr_diags *diags);

#endif
