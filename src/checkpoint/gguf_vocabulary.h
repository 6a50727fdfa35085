// SPDX-License-Identifier: Apache-2.0
/* The tokenizer of a checkpoint as metadata of GGUF, by tokenizer.json, tokenizer.model,
 * tokenizer_config.json, chat_template.jinja and generation_config.json of its folder. */
#ifndef TSR_CHECKPOINT_GGUF_VOCABULARY_H
#define TSR_CHECKPOINT_GGUF_VOCABULARY_H
#include "checkpoint/gguf_mapping.h"

/* Appends tokens, their types, merges or scores, ids of special tokens, whether a text gets them,
 * and the chat template. `name` is general.name, on which llama.cpp makes tokenizers depend.
 * Without a tokenizer the model is one of token numbers ("none").
 *
 * Errors: a tokenizer that is neither byte-level BPE nor, with architectures that have it,
 * SentencePiece's BPE; one that has more tokens than the model; a pre-tokenizer that llama.cpp does
 * not have. */
bool tsr_gguf_vocabulary_add(
    tsr_arena *arena, const char *folder, const char *name, const char *table,
    const tsr_gguf_mapping *mapping, tsr_gguf_metadata *metadata, tsr_diags *diags);

#endif
