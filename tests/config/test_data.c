// SPDX-License-Identifier: Apache-2.0
/* The keys of the data: several sources, their weights and formats, and what contradicts. */
#include "config/print.h"
#include "helper.h"

#define T "training_config: {"

static void test_sources(void) {
  loaded l = load(T "data_sources: [a.txt, {path: b.bin, format: llmc}], data_format: text}");
  CHECK_STR(l.said, "");
  const tsr_config_training *t = &l.config->training;
  CHECK_INT(t->data_sources_count, 2);
  CHECK_STR(t->data_sources[0].path, "a.txt");
  CHECK(t->data_sources[0].format == TSR_DATA_AUTO && t->data_sources[0].weight == 0);
  CHECK(t->data_sources[1].format == TSR_DATA_LLMC && t->data_format == TSR_DATA_TEXT);
  CHECK_INT(t->data_sources[1].location.col, 41);
  unload(&l);
  CHECK_VALUE(T "data_sources: [{path: a, weight: 0.7}]}", training.data_sources[0].weight, 0.7);
  CHECK_VALUE(T "data_sources: []}", training.data_sources_count, 0);
  CHECK_VALUE(T "documents: separate}", training.documents, TSR_DOCUMENTS_SEPARATE);
  CHECK_VALUE(T "end_of_text: 50256}", training.end_of_text, 50256);
  CHECK_VALUE("", training.end_of_text, -1);
}

static void test_refused(void) {
  CHECK_SAID(
      T "data_sources: [{path: a, weight: 0}]}", false,
      "run.yaml:1:52: error: 'data_sources[0].weight' must be above 0, found the integer 0\n"
      "    1 | training_config: {data_sources: [{path: a, weight: 0}]}\n"
      "      |                                                    ^\n");
  CHECK_SAID(
      T "data_sources: [{path: a, weight: 1}, b]}", false,
      "run.yaml:1:56: error: 'data_sources[1]' has no weight, but 'data_sources[0]' has one: all "
      "have one, or none\n"
      "    1 | training_config: {data_sources: [{path: a, weight: 1}, b]}\n"
      "      |                                                        ^\n");
  CHECK_SAID(
      T "data_sources: [{weight: 1}]}", false,
      "run.yaml:1:34: error: 'data_sources[0]' has no path\n"
      "    1 | training_config: {data_sources: [{weight: 1}]}\n"
      "      |                                  ^\n");
  CHECK_SAID(
      T "data_sources: [{path: a, wieght: 1}]}", false,
      "run.yaml:1:44: error: unknown key 'wieght' in data_sources[0]\n"
      "    1 | training_config: {data_sources: [{path: a, wieght: 1}]}\n"
      "      |                                            ^~~~~~\n      = did you mean "
      "'weight'?\n");
  CHECK_SAID(
      T "data_sources: [{path: a, format: nanogpt}]}", false,
      "run.yaml:1:52: error: unknown data_sources[0].format: the text 'nanogpt'\n"
      "    1 | training_config: {data_sources: [{path: a, format: nanogpt}]}\n"
      "      |                                                    ^~~~~~~\n"
      "      = valid: auto, text, llmc, nanogpt_u16, nanogpt_u32, megatron, tt_train\n");
  CHECK_SAID(
      T "data_sources: a.txt}", false,
      "run.yaml:1:33: error: 'data_sources' must be a list of paths or of maps {path, weight, "
      "format}, found the text 'a.txt'\n"
      "    1 | training_config: {data_sources: a.txt}\n      |                                 "
      "^~~~~\n");
  CHECK_SAID(
      T "data_path: a,\n  data_sources: [b]}", false,
      "run.yaml:2:3: error: 'data_sources' contradicts 'data_path'\n"
      "    2 |   data_sources: [b]}\n      |   ^~~~~~~~~~~~\n"
      "      = 'data_path' stands in run.yaml:1\n");
  CHECK_SAID(
      T "validation_path: a,\n  validation_fraction: 0}", false,
      "run.yaml:2:3: error: 'validation_fraction' contradicts 'validation_path'\n"
      "    2 |   validation_fraction: 0}\n      |   ^~~~~~~~~~~~~~~~~~~\n"
      "      = 'validation_path' stands in run.yaml:1\n"
      "      = eval_every: 0 switches evaluation off\n");
}

static void test_printed(void) {
  static const char text[] =
      T "data_sources: [{path: 'a, b.txt', weight: 0.1}, {path: c, weight: 2, format: megatron}]}";
  tsr_text printed = {0};
  loaded l = load(text);
  tsr_config_print(l.config, &printed);
  CHECK(
      strstr(
          printed.data, "data_sources: [{path: \"a, b.txt\", weight: 0.1}, {path: c, weight: 2.0, "
                        "format: megatron}]  # run.yaml:1\n") != NULL);
  loaded again = load(printed.data);
  CHECK(again.ok && again.config->training.data_sources[0].weight == 0.1);
  CHECK_STR(again.config->training.data_sources[0].path, "a, b.txt");
  unload(&again);
  unload(&l);
  tsr_text_free(&printed);
}

#define CHAT "data: {format: chat}\n"

static void test_chat(void) {
  loaded l =
      load("data: {format: chat, template: a.jinja, train_on: last_assistant, packing: none, "
           "too_long: drop}");
  CHECK_STR(l.said, "");
  const tsr_config_data *d = &l.config->data;
  CHECK(d->format == TSR_FILES_CHAT && d->train_on == TSR_TRAINED_LAST_ASSISTANT);
  CHECK(d->packing == TSR_PACKING_NONE && d->too_long == TSR_TOO_LONG_DROP);
  CHECK_STR(d->template_path, "a.jinja");
  CHECK_INT(l.config->training.documents, TSR_DOCUMENTS_SEPARATE);
  CHECK_INT(tsr_config_location(l.config, "training_config.documents").col, 16);
  unload(&l);
  CHECK_VALUE(CHAT, data.train_on, TSR_TRAINED_ASSISTANT);
  CHECK_VALUE(CHAT, data.packing, TSR_PACKING_BEST_FIT);
  CHECK_VALUE(CHAT, data.too_long, TSR_TOO_LONG_TRUNCATE);
  CHECK_VALUE(CHAT T "documents: separate}", training.documents, TSR_DOCUMENTS_SEPARATE);
  CHECK_VALUE("data: {format: chat, date: 2000-03-01}", data.date_s, 951868800);
  CHECK_VALUE("", data.format, TSR_FILES_AUTO);
  CHECK_VALUE("", training.documents, TSR_DOCUMENTS_PACKED);
  CHECK_VALUE("data: {format: text}", training.data_format, TSR_DATA_TEXT);
  CHECK_VALUE("data: {format: tokens}", training.data_format, TSR_DATA_AUTO);

  CHECK_SAID(
      CHAT T "documents: packed}", false,
      "run.yaml:1:8: error: 'format' contradicts 'documents'\n"
      "    1 | data: {format: chat}\n      |        ^~~~~~\n"
      "      = 'documents' stands in run.yaml:2\n"
      "      = conversations do not attend to each other: documents are separate\n");
  CHECK_SAID(
      CHAT T "sample_stride: 4, data_format: text}", false,
      "run.yaml:1:8: error: 'format' contradicts 'data_format'\n"
      "    1 | data: {format: chat}\n      |        ^~~~~~\n"
      "      = 'data_format' stands in run.yaml:2\n"
      "run.yaml:1:8: error: 'format' contradicts 'sample_stride'\n"
      "    1 | data: {format: chat}\n      |        ^~~~~~\n"
      "      = 'sample_stride' stands in run.yaml:2\n");
  CHECK_SAID(
      CHAT T "end_of_text: 0}", false,
      "run.yaml:1:8: error: 'format' contradicts 'end_of_text'\n"
      "    1 | data: {format: chat}\n      |        ^~~~~~\n"
      "      = 'end_of_text' stands in run.yaml:2\n"
      "      = a conversation ends as its template ends it\n");
  CHECK_VALUE(CHAT T "end_of_text: -1}", training.end_of_text, -1);
  CHECK_SAID(
      "data: {format: tokens}\n" T "data_sources: [{path: a, format: text}]}", false,
      "run.yaml:2:34: error: the format of 'data_sources[0]' contradicts data.format: tokens\n"
      "    2 | training_config: {data_sources: [{path: a, format: text}]}\n"
      "      |                                  ^\n");
  CHECK_SAID(
      "data: {packing: none}", true,
      "run.yaml:1:8: warning: 'packing' has no effect: data.format is not chat or labels\n"
      "    1 | data: {packing: none}\n      |        ^~~~~~~\n");
}

/* What is printed is read as the same. */
static void test_chat_printed(void) {
  static const char section[] = "data:\n  format: chat  # run.yaml:1\n"
                                "  template: tokenizer  # default\n"
                                "  date: \"\"  # default\n"
                                "  train_on: all  # run.yaml:1\n"
                                "  packing: best_fit  # default\n"
                                "  too_long: truncate  # default\n";
  tsr_text printed = {0};
  loaded l = load("data: {format: chat, train_on: all}");
  tsr_config_print(l.config, &printed);
  CHECK(strstr(printed.data, section) != NULL);
  loaded again = load(printed.data);
  CHECK_STR(again.said, "");
  CHECK_INT(again.config->data.train_on, TSR_TRAINED_ALL);
  unload(&again);
  unload(&l);
  tsr_text_free(&printed);
}

int main(void) {
  test_sources();
  test_chat();
  test_chat_printed();
  test_refused();
  test_printed();
  return check_done("config.data");
}
