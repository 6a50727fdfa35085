// SPDX-License-Identifier: Apache-2.0
/* What a tokenizer.json is refused for, word for word, and what is taken. */
#include "tokenizer/subword.h"
#include "tests/check.h"
#include "tests/data/bpe_json.h"
#include "tests/printed.h"

#define TOKEN(id, text, rest)                                                                      \
  "{\"id\":" id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false,"                \
  "\"rstrip\":false,\"normalized\":false,\"special\":" rest "}"
#define NORMALIZED(id, text)                                                                       \
  "{\"id\":" id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false,"                \
  "\"rstrip\":false,\"normalized\":true,\"special\":false}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SEQUENCE(first) "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," BYTE_LEVEL "]}"

typedef struct {
  bpe_json json;
  const char *want; /* "": no error */
} refusal;

static const refusal models[] = {
    {{.vocab = ",\"xx\":1.5"},
     "t.json: error: model.vocab: the id of 'xx' should be a whole number in [0, 16777216)\n"},
    {{.vocab = ",\"xx\":16777216"},
     "t.json: error: model.vocab: the id of 'xx' should be a whole number in [0, 16777216)\n"},
    {{.vocab = ",\"xx\":65"},
     "t.json: error: model.vocab: 'xx' has the id 65, which another token has too\n"},
    {{.merges = "\"ab\""},
     "t.json: error: model.merges: merge 0 should be \"a b\" or [\"a\", \"b\"]\n"},
    {{.vocab = ",\"ab\":256", .merges = "\"a b\",[\"a\"]"},
     "t.json: error: model.merges: merge 1 should be \"a b\" or [\"a\", \"b\"]\n"},
    {{.merges = "\"a b\""},
     "t.json: error: model.merges: merge 0: 'ab' is not in the vocabulary\n"},
    {{.merges = "\"a bc\""},
     "t.json: error: model.merges: merge 0: 'bc' is not in the vocabulary\n"},
    {{.vocab = ",\"ab\":256", .merges = "\"a b\",[\"a\",\"b\"]"},
     "t.json: error: model.merges: merge 1, 'a' and 'b', is merge 0 again\n"},
    {{.model = ",\"dropout\":0.1"}, "t.json: error: model.dropout 0.1 is not supported\n"},
    {{.model = ",\"dropout\":null,\"unk_token\":null,\"fuse_unk\":false,"
               "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null"},
     ""},
    {{.model = ",\"unk_token\":\"<unk>\""}, ""},
    {{.model = ",\"fuse_unk\":true"}, ""},
    {{.model = ",\"byte_fallback\":true"}, ""},
    {{.model = ",\"continuing_subword_prefix\":\"##\""}, ""},
    {{.model = ",\"end_of_word_suffix\":\"</w>\""}, ""},
    {{.model = ",\"ignore_merge\":true"},
     "t.json: error: model.ignore_merge is not supported\n"
     "      = did you mean 'ignore_merges'?\n"},
    {{.more = ",\"padding\":null,\"extra\":1"},
     "t.json: error: extra is not supported\n"
     "      = valid: version, truncation, padding, added_tokens, normalizer, pre_tokenizer, "
     "post_processor, decoder, model\n"},
    {{.decoder = "{\"type\":\"Metaspace\"}"},
     "t.json: error: 'replacement' of Metaspace should be a text\n"},
    {{.decoder = "null"}, ""},
};

static const refusal added_tokens[] = {
    {{.added = TOKEN("256", "<e>", "true") "," TOKEN("257", "<f>", "false")}, ""},
    {{.added = TOKEN("65", "A", "true")}, ""}, /* it is the vocabulary's */
    {{.added = "{\"id\":256}"}, "t.json: error: added_tokens: a token has no 'content'\n"},
    {{.added = TOKEN("-1", "<e>", "true")},
     "t.json: error: added_tokens: the id of '<e>' should be a whole number in [0, 16777216)\n"},
    {{.added = "{\"id\":256,\"content\":\"<e>\"}"},
     "t.json: error: 'single_word' of an added token should be true or false\n"},
    {{.added = "{\"id\":256,\"content\":\"<e>\",\"regex\":true}"},
     "t.json: error: added_tokens.regex is not supported\n"
     "      = valid: id, content, single_word, lstrip, rstrip, normalized, special\n"},
    {{.added = TOKEN("66", "A", "true")},
     "t.json: error: added_tokens: 'A' has the id 66, but 65 in the vocabulary\n"},
    {{.added = TOKEN("66", "<e>", "true")},
     "t.json: error: added_tokens: '<e>' has the id 66, which another token has too\n"},
    {{.added = TOKEN("256", "<e>", "true") "," TOKEN("257", "<e>", "false")},
     "t.json: error: added_tokens: '<e>' is there twice\n"},
    {{.added = TOKEN("256", "<e>", "true") "," TOKEN("256", "<f>", "false")},
     "t.json: error: added_tokens: '<e>' and '<f>' both have the id 256\n"},
    {{.normalizer = "{\"type\":\"NFC\"}",
      .added = NORMALIZED("256", "\xe1\xb8\x8b") "," NORMALIZED("257", "d\xcc\x87")},
     "t.json: error: added_tokens: 256 and 257 are the same text when they are normalized\n"},
    {{.normalizer =
          "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"NFD\"}]}",
      .added = NORMALIZED("256", "\xef\xac\x81") "," NORMALIZED("257", "fi")},
     "t.json: error: added_tokens: 256 and 257 are the same text when they are normalized\n"},
};

static const refusal parts[] = {
    {{.normalizer = "{\"type\":\"NFKC\"}"}, ""},
    {{.normalizer = "{\"type\":\"Nfc\"}"},
     "t.json: error: the normalizer 'Nfc' is not supported\n"
     "      = valid: none, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, BertNormalizer, "
     "Replace, Prepend, Precompiled, ByteLevel, Nmt, a Sequence of them\n"},
    {{.normalizer = "{\"type\":\"Nmt\"}"}, ""},
    {{.normalizer = "{\"type\":\"Lowercase\",\"locale\":\"tr\"}"},
     "t.json: error: Lowercase.locale is not supported\n"
     "      = valid: type\n"},
    {{.normalizer = "{\"type\":\"Strip\",\"strip_left\":true}"},
     "t.json: error: 'strip_right' of Strip should be true or false\n"},
    {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a\"},\"content\":\"\"}"},
     "t.json: error: the pattern '(a' is not right: end pattern with unmatched parenthesis\n"},
    {{.normalizer = "{\"type\":\"Prepend\"}"},
     "t.json: error: 'prepend' of Prepend should be a text\n"},
    {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}"},
     "t.json: error: precompiled_charsmap of Precompiled is no base64\n"},
    {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAAAAA=\"}"},
     "t.json: error: precompiled_charsmap of Precompiled: its trie has 8 bytes of 8\n"},
    {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"}, ""},
    {{.normalizer =
          "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}"},
     ""},
    {{.pre_tokenizer = "null"}, ""},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\"}"},
     "t.json: error: 'replacement' of Metaspace should be a text\n"},
    {{.pre_tokenizer = SEQUENCE(BYTE_LEVEL)}, ""},
    {{.pre_tokenizer = "{\"type\":\"ByteLevel\"}"},
     "t.json: error: 'add_prefix_space' of ByteLevel should be true or false\n"},
    {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"fast\":1}"},
     "t.json: error: ByteLevel.fast is not supported\n"
     "      = valid: type, add_prefix_space, trim_offsets, use_regex\n"},
    {{.pre_tokenizer = SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":false}")}, ""},
    {{.pre_tokenizer = SEQUENCE("{\"type\":\"Digits\"}")},
     "t.json: error: 'individual_digits' of Digits should be true or false\n"},
    {{.pre_tokenizer =
          SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Removed\"}")},
     ""},
    {{.pre_tokenizer =
          SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Remove\"}")},
     "t.json: error: the behavior 'Remove' of Split is not supported\n"
     "      = did you mean 'Removed'?\n"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"},
     "t.json: error: 'replacement' of Metaspace should be one character, not 'ab'\n"},
    {{.pre_tokenizer =
          "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"alway\"}"},
     "t.json: error: the prepend_scheme 'alway' of Metaspace is not supported\n"
     "      = did you mean 'always'?\n"},
    {{.pre_tokenizer = "{\"type\":\"FixedLength\",\"length\":0}"},
     "t.json: error: 'length' of FixedLength should be at least 1\n"},
    {{.pre_tokenizer = "{\"type\":\"Words\"}"},
     "t.json: error: the pre-tokenizer 'Words' is not supported\n"
     "      = valid: none, ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, "
     "BertPreTokenizer, Punctuation, CharDelimiterSplit, UnicodeScripts, FixedLength, a Sequence "
     "of "
     "them\n"},
    {{.decoder = "{\"type\":\"Bytes\"}"},
     "t.json: error: the decoder 'Bytes' is not supported\n"
     "      = valid: none, ByteLevel, Metaspace, WordPiece, ByteFallback, Fuse, Strip, Replace, "
     "BPEDecoder, CTC, a Sequence of them\n"},
    {{.decoder = "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"},
     "t.json: error: 'start' of Strip should be a whole number, at least 0\n"},
    {{.pre_tokenizer =
          SEQUENCE("{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"}")},
     "t.json: error: the pattern of Split should be {\"Regex\": …} or {\"String\": …}\n"},
    {{.pre_tokenizer =
          SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}")},
     "t.json: error: Split has an empty pattern\n"},
    {{.post_processor = "{\"type\":\"RobertaProcessing\"}"},
     "t.json: error: 'cls' of RobertaProcessing should be [token, id]\n"},
    {{.post_processor = "{\"type\":\"BertProcessing\",\"cls\":[\"a\",97],\"sep\":[\"z\",256]}"},
     "t.json: error: BertProcessing: an id of 'sep' is outside the vocabulary of 256\n"},
    {{.post_processor = "{\"type\":\"Template\"}"},
     "t.json: error: the post-processor 'Template' is not supported\n"
     "      = valid: ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, a Sequence "
     "of "
     "them\n"},
    {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":{\"type\":\"NFC\"}}"},
     "t.json: error: 'normalizers' of Sequence should be a list\n"},
    {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pre_tokenizers\":[]}"},
     "t.json: error: Sequence.pre_tokenizers is not supported\n"
     "      = did you mean 'pretokenizers'?\n"},
    {{.decoder = "{\"type\":\"Sequence\"}"},
     "t.json: error: 'decoders' of Sequence should be a list\n"},
    {{.post_processor = "{\"type\":\"Sequence\",\"processors\":5}"},
     "t.json: error: 'processors' of Sequence should be a list\n"},
    {{.post_processor = "{\"type\":\"ByteLevel\",\"trim_offsets\":1}"},
     "t.json: error: 'trim_offsets' of ByteLevel should be true or false\n"},
    {{.post_processor = "{\"type\":\"ByteLevel\",\"trim_offset\":true}"},
     "t.json: error: ByteLevel.trim_offset is not supported\n"
     "      = did you mean 'trim_offsets'?\n"},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
          "{\"Special\":{\"id\":\"<s>\"}}]}"},
     "t.json: error: TemplateProcessing: an item of 'single' has neither SpecialToken nor "
     "Sequence\n"},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],"
          "\"pair\":5}"}, /* which is not read */
     ""},
    {{.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[]}"},
     "t.json: error: TemplateProcessing: 'single' has the text 0 times, not once\n"},
    {{.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                        "{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}"},
     "t.json: error: TemplateProcessing: '<s>' has no ids\n"},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],"
          "\"special_tokens\":{\"<s>\":{\"ids\":[256]}}}"},
     "t.json: error: TemplateProcessing: an id of '<s>' is outside the vocabulary of 256\n"},
};

static void test_refusals(tsr_arena *arena, const refusal *cases, size_t count, tsr_diags *diags) {
  for (size_t i = 0; i < count; i++) {
    tsr_subword *bpe;
    bool ok = bpe_json_parse(arena, &cases[i].json, &bpe, diags);
    CHECK_INT(ok, !cases[i].want[0]);
    CHECK_STR(printed_diags(arena, diags), cases[i].want);
  }
}

/* Files that are none, and vocabularies without a byte. */
static void test_whole_files(tsr_arena *arena, tsr_diags *diags) {
  static const char *const cases[][2] = {
      {"{}", "t.json: error: there is no 'model': this is no tokenizer.json\n"},
      {"[1]", "t.json: error: there is no 'model': this is no tokenizer.json\n"},
      {"{\"model\":{\"type\":\"Wordpiece\",\"vocab\":{}}}",
       "t.json: error: the model 'Wordpiece' is not supported\n"
       "      = valid: BPE, Unigram, WordPiece, WordLevel\n"},
      {"{\"model\":{\"vocab\":{}}}", "t.json: error: the model '' is not supported\n"
                                     "      = valid: BPE, Unigram, WordPiece, WordLevel\n"},
      {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"unk_token\":\"u\"}}",
       "t.json: error: 'continuing_subword_prefix' of WordPiece should be a text\n"},
      {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}",
       "t.json: error: 'unk_token' of WordLevel should be a text\n"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}",
       "t.json: error: model.vocab should be a list of tokens and scores\n"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1],[\"b\"]]}}",
       "t.json: error: model.vocab: token 1 should be [text, score]\n"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]],\"unk_id\":1}}",
       "t.json: error: model.unk_id is 1, and the vocabulary has 1 tokens\n"},
      {"{\"model\":{\"vocab\":[],\"merges\":[]}}",
       "t.json: error: model.vocab should be an object of tokens and ids\n"},
      {"{\"model\":{\"vocab\":{},\"merges\":[]},\"added_tokens\":{}}",
       "t.json: error: added_tokens should be a list\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tsr_subword *bpe;
    CHECK(!tsr_subword_parse(arena, "t.json", cases[i][0], strlen(cases[i][0]), &bpe, diags));
    CHECK_STR(printed_diags(arena, diags), cases[i][1]);
  }
  tsr_subword *bpe;
  tsr_location location = {.file = "run.yaml", .line = 3, .col = 19};
  CHECK(!tsr_subword_read(arena, "/no/tokenizer.json", location, &bpe, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "run.yaml:3:19: error: cannot read '/no/tokenizer.json': No such file or directory\n");
}

/* ---- patterns ---- */

/* Of each pattern the text that it finds first in `text`, or the error. */
static const struct {
  const char *pattern, *text, *want;
} patterns[] = {
    {"\\s+", "a\xe1\xa0\x8e\xc2\x85 b", "\xc2\x85 "}, /* U+180E is no space */
    {"[^\\s]+", " \xe1\xa0\x8e ", "\xe1\xa0\x8e"},
    {"\\S+", " ab ", "ab"},
    {"\\w+", "-a\xcc\x81_1-", "a\xcc\x81_1"},
    {"\\W", "a\xcc\x81-", "-"},
    {"\\w+", "-\xc2\xbd\xe2\x85\x93", "\xc2\xbd"}, /* ½ is in Latin-1, ⅓ is not */
    {"[\\w]+",
     "\xc2\xbd"
     "a",
     "a"},
    {"[\\w-]+", " a-b ", "a-b"},
    {"\\h+", "xyzFf0g", "Ff0"},
    {"[\\hx]+", "0xFg", "0xF"},
    {"\\v", "\n\x0b", "\x0b"},
    {"\\u00e9|\\x{e8}|\\x41", "B\xc3\xa9", "\xc3\xa9"},
    {"\\p{Han}+", "a\xe3\x80\x81\xe4\xb8\xad", "\xe4\xb8\xad"}, /* not Script_Extensions */
    {"\\p{^L}", "ab1", "1"},
    {"\\P{N}+", "1a2", "a"},
    {"^b$", "a\nb\nc", "b"}, /* of lines */
    {"(?i)LL", "x'll", "ll"},
    {"(?i:'S)", "x'\xc5\xbf", "'\xc5\xbf"},
    {"\\p{N}{1,3}", "12345", "123"},
    {"a{2}", "aaa", "aa"},
    {"a++", "baa", "aa"},
    {"\\[\\{\\.", "[{.", "[{."},
    {"[.{(]+", "a({.b", "({."},
    {"(a", "",
     "t.json: error: the pattern '(a' is not right: end pattern with unmatched parenthesis\n"},
    {"\\p{Klingon}", "",
     "t.json: error: the pattern '\\p{Klingon}' is not right: invalid character property name "
     "{Klingon}\n"},
};

static const char *escaped(tsr_arena *arena, const char *text) {
  char *copy = tsr_arena_alloc(arena, 2 * strlen(text) + 1), *to = copy;
  for (; *text; *to++ = *text++)
    if (*text == '\\') *to++ = '\\';
  return copy;
}

/* Without merges a split does not show, so each text is one token if it is a piece by itself. */
static void test_pattern(tsr_arena *arena, size_t i, tsr_diags *diags) {
  const char *pattern = escaped(arena, patterns[i].pattern), *want = patterns[i].want;
  tsr_text word = {0};
  for (const char *c = want; *c && patterns[i].text[0]; c++) {
    char letter[5] = "";
    tsr_utf8_put(bpe_letter((unsigned char)*c), letter);
    tsr_text_add(&word, "%s%s", *c == '\\' || *c == '"' ? "\\" : "", letter);
  }
  bool is_new = strlen(want) > 1 && patterns[i].text[0];
  bpe_json json = {
      .vocab = is_new ? tsr_arena_printf(arena, ",\"%s\":256", word.data) : NULL,
      .model = ",\"ignore_merges\":true",
      .pre_tokenizer = tsr_arena_printf(
          arena,
          SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                   "\"behavior\":\"Isolated\"}"),
          pattern)};
  tsr_text_free(&word);
  tsr_subword *bpe;
  bool ok = bpe_json_parse(arena, &json, &bpe, diags);
  CHECK_AT(ok == (patterns[i].text[0] != 0), "%s", patterns[i].pattern);
  const char *said = printed_diags(arena, diags);
  if (!patterns[i].text[0]) CHECK_STR(said, want);
  if (!ok) return;
  int32_t tokens[64];
  int64_t count = 0;
  bool found = false;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  CHECK(tsr_subword_encode(
      bpe, scratch, patterns[i].text, strlen(patterns[i].text), tokens, &count, diags));
  for (int64_t t = 0; t < count; t++) found |= tokens[t] == (is_new ? 256 : (unsigned char)want[0]);
  CHECK_AT(found, "%s does not find '%s'", patterns[i].pattern, want);
  tsr_subword_scratch_free(scratch);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_refusals(arena, models, sizeof models / sizeof *models, diags);
  test_refusals(arena, added_tokens, sizeof added_tokens / sizeof *added_tokens, diags);
  test_refusals(arena, parts, sizeof parts / sizeof *parts, diags);
  test_whole_files(arena, diags);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) test_pattern(arena, i, diags);
  tsr_arena_free(arena);
  return check_done("bpe_errors");
}
