// SPDX-License-Identifier: Apache-2.0
/* What characters are to the tokenizers package and to Oniguruma, which have other versions of
 * Unicode than utf8proc. */
#ifndef TSR_TOKENIZER_CHAR_CLASS_H
#define TSR_TOKENIZER_CHAR_CLASS_H
#include <stddef.h>
#include <stdint.h>

/* Bits. The first six are classes of the package's steps, the others of Oniguruma's properties. */
enum {
  TSR_CHAR_PUNCTUATION = 1,
  TSR_CHAR_NUMERIC = 2,
  TSR_CHAR_MARK = 4,        /* StripAccents leaves these out */
  TSR_CHAR_NONSPACING = 8,  /* BertNormalizer does, as accents */
  TSR_CHAR_CONTROL = 16,    /* and these, to clean a text */
  TSR_CHAR_WORD = 32,       /* \w of Rust's expressions */
  TSR_CHAR_SPACE = 64,      /* White_Space, which is \s of both */
  TSR_CHAR_LETTER = 128,    /* \p{L} */
  TSR_CHAR_NUMBER = 256,    /* \p{N} */
  TSR_CHAR_UPPER = 512,     /* \p{Lu}, \p{Lt}, \p{Lm}, \p{Lo}, \p{M} */
  TSR_CHAR_LOWER = 1024,    /* \p{Ll}, \p{Lm}, \p{Lo}, \p{M} */
  TSR_CHAR_LINE_END = 2048, /* \r and \n */
};

/* A number of such bits for each code point; made by the first call. For any number of threads. */
const uint16_t *tsr_char_classes(void);

/* The lower case as Rust has it: one code point, or two of U+0130. Returns how many. */
int tsr_char_lower(uint32_t code, uint32_t ret_codes[2]);

/* The number of a character's script; 0: any. Kana are Han, as sentencepiece has it. */
int tsr_char_script(uint32_t code);

#endif
