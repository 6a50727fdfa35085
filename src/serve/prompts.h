// SPDX-License-Identifier: Apache-2.0
/* The tokens of a request: of texts, lists of tokens, and conversations. */
#ifndef TSR_SERVE_PROMPTS_H
#define TSR_SERVE_PROMPTS_H
#include "serve/fields.h"
#include "serve/request.h"

/* A text's tokens; `adds_special`: behind those that the tokenizer's template begins with.
 * `ret_text` (NULL: not wanted) has a copy of it. */
bool tsr_prompt_of_text(
    const tsr_fields *fields, const tsr_served_model *model, const char *text, bool adds_special,
    tsr_prompt *ret_prompt, tsr_prompt_text *ret_text);
bool tsr_prompt_of_list(
    const tsr_fields *fields, const tsr_served_model *model, const char *key, const cJSON *list,
    tsr_prompt *ret_prompt);
/* The key "prompt": a text, a list of texts, a list of tokens, or a list of such lists. */
bool tsr_prompts_read(
    const tsr_fields *fields, const tsr_served_model *model, bool adds_special,
    tsr_request *request);
/* The keys "messages", "tools" and "chat_template_kwargs" of the body, rendered. */
bool tsr_prompt_of_chat(
    const tsr_fields *fields, const tsr_served_model *model, const char *body, size_t length,
    bool has_tools, bool adds_generation_prompt, tsr_prompt *ret_prompt);

#endif
