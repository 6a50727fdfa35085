// SPDX-License-Identifier: Apache-2.0
/* The chat template that a model came with (Hugging Face: Jinja, in chat_template.jinja,
 * tokenizer_config.json or chat_template.json). Templates are not interpreted: one is known or it
 * is not. */
#ifndef TSR_TRAIN_CHAT_TEMPLATE_CHECK_H
#define TSR_TRAIN_CHAT_TEMPLATE_CHECK_H
#include "train/chat_prompt.h"

/* Whether a conversation that is rendered in the format is what the template in the model's folder
 * makes of it. A model without a template is taken by its tokenizer's special tokens. Errors: a
 * template that is not known, or that says something for a system which the conversation leaves
 * out. */
bool tsr_chat_template_check(
    tsr_arena *arena, const char *folder, const tsr_chat *chat, tsr_chat_format format,
    tsr_diags *diags);

#endif
