// SPDX-License-Identifier: Apache-2.0
/* The chat template of a model's folder: which of its files has it, and the special tokens that are
 * its variables. */
#include "data/chat_template.h"
#include "data/conversation.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static void check_folder(const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_tokenizer bytes = tsr_tokenizer_byte();
  const tsr_chat_template *t;
  static const char json[] =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [1]}";
  tsr_text_file file = {"chat.json", json, sizeof json - 1};
  tsr_chat chat;
  tsr_jinja_output out = {0};
  bool ok = tsr_chat_template_open(arena, ".", NULL, &bytes, TSR_NOWHERE, &t, diags) &&
            tsr_conversation_chat(arena, &file, &chat, diags);
  for (int i = 0; ok && i < 2; i++) {
    if (i) chat.tools = tsr_jinja_none();
    ok = tsr_chat_template_render(arena, t, &chat, 1, true, &out, diags);
    const char *part = i ? strchr(want, '|') + 1 : want;
    CHECK_AT(!strncmp(part, out.text.data, out.text.length), "%s: %s", want, out.text.data);
    tsr_text_free(&out.text);
  }
  tsr_diags_print(diags, stderr);
  CHECK(ok);
  tsr_arena_free(arena);
}

/* As Hugging Face's cache has it: the file is a link to one of another name. */
static void make_link(tsr_arena *arena, const char *name) {
  const char *blob = tsr_arena_printf(arena, "%s.blob", name);
  CHECK(!rename(name, blob) && !symlink(blob, name));
}

/* The variables are what AutoTokenizer of transformers 5.24 has as special_tokens_map. */
static void test_special_tokens(void) {
  static const struct {
    const char *config, *map, *text;
  } cases[] = {
      {"\"eos_token\": \"<a>\"", "\"eos_token\": \"<b>\"", "eos <b>;."},
      {"\"eos_token\": \"<a>\"", "\"bos_token\": {\"content\": \"<b>\"}", "bos <b>;eos <a>;."},
      {"\"eos_token\": null", "\"eos_token\": \"<b>\"", "eos <b>;."},
      {"\"eos_token\": \"<a>\"", "\"eos_token\": null", "."},
      {"\"eos_token\": \"<a>\", \"added_tokens_decoder\": {}", "\"eos_token\": \"<b>\"",
       "eos <a>;."},
      {"\"extra_special_tokens\": {\"image_token\": \"<i>\"}", "", "image <i>;."},
      {"\"extra_special_tokens\": {\"image_token\": {\"content\": \"<i>\"}}", "", "image <i>;."},
      {"\"extra_special_tokens\": [\"<i>\"]", "", "."},
      {"\"image_token\": \"<i>\"", "\"image_token\": \"<j>\"", "image <i>;."},
      {"\"model_specific_special_tokens\": {\"image_token\": \"<i>\"}", "", "image <i>;."},
      {"\"eos_token\": \"<a>\", \"extra_special_tokens\": {\"image_token\": \"<i>\", "
       "\"eos_token\": \"<e>\"}",
       "\"extra_special_tokens\": {\"image_token\": \"<j>\"}", "eos <e>;image <j>;."}};
  tsr_arena *arena = tsr_arena_new();
  scratch_text(
      "chat_template.jinja",
      "{% for name, text in [('bos', bos_token), ('eos', eos_token), ('image', image_token)] %}"
      "{% if text %}{{ name ~ ' ' ~ text ~ ';' }}{% endif %}{% endfor %}.");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scratch_text("tokenizer_config.json", tsr_arena_printf(arena, "{%s}", cases[i].config));
    scratch_text("special_tokens_map.json", tsr_arena_printf(arena, "{%s}", cases[i].map));
    check_folder(tsr_arena_printf(arena, "%s|%s", cases[i].text, cases[i].text));
  }
  for (const char *const *name =
           (const char *const[]){
               "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", NULL};
       *name; name++)
    CHECK(!unlink(*name));
  tsr_arena_free(arena);
}

/* The text with tools, and without. */
static void test_folders(void) {
  tsr_arena *arena = tsr_arena_new();
  scratch_text("chat_template.json", "{\"chat_template\": \"{{ bos_token }}json\"}");
  check_folder("json|json");
  scratch_text(
      "tokenizer_config.json",
      "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": null, \"chat_template\": [{\"name\": "
      "\"default\", \"template\": \"{{ bos_token }}default\"}, {\"name\": \"tool_use\", "
      "\"template\": \"tools {{ messages[0].content }}\"}, {\"name\": \"x\", \"template\": "
      "\"{%\"}]}");
  check_folder("tools x|<b>default");
  scratch_text("special_tokens_map.json", "{\"bos_token\": \"<c>\", \"eos_token\": \"<e>\"}");
  scratch_text("tokenizer_config.json", "{\"chat_template\": \"{{ bos_token }}{{ eos_token }}\"}");
  check_folder("<c><e>|<c><e>");
  scratch_text("chat_template.jinja", "file{{ eos_token }}\n");
  check_folder("file<e>|file<e>");
  const char *const names[] = {
      "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json",
      "chat_template.json"};
  for (int i = 0; i < 4; i++) make_link(arena, names[i]);
  check_folder("file<e>|file<e>");
  for (int i = 0; i < 4; i++) {
    CHECK(!unlink(names[i]));
    if (i == 0) check_folder("<c><e>|<c><e>");
    CHECK(!unlink(tsr_arena_printf(arena, "%s.blob", names[i])));
  }
  tsr_arena_free(arena);
}

int main(void) {
  char folder[64];
  scratch_enter(folder);
  test_folders();
  test_special_tokens();
  scratch_leave(folder);
  return check_done("data.chat_template");
}
