// SPDX-License-Identifier: Apache-2.0
/* The tables of nfc.c, which scripts/make_nfc_table makes. */
#ifndef TSR_DATA_NFC_TABLE_H
#define TSR_DATA_NFC_TABLE_H
#include <stdint.h>

/* A bit for each code point below 0x30000 that may keep a text from being NFC; above there is none.
 * tsr_nfc_index has the row of bits of 256 code points. */
extern const uint8_t tsr_nfc_index[0x300];
extern const uint64_t tsr_nfc_bits[][4];

/* Runs of code points of one combining class above 0, rising: first << 15 | (count - 1) << 8 |
 * class. */
extern const int tsr_nfc_classes_count;
extern const uint32_t tsr_nfc_classes[];

/* Canonical decompositions, rising: code << 42 | first << 21 | second, or second 0 for a single
 * one. Hangul is computed. */
extern const int tsr_nfc_decompositions_count;
extern const uint64_t tsr_nfc_decompositions[];

/* Those that compose again, as places in the decompositions, rising by (first, second). */
extern const int tsr_nfc_compositions_count;
extern const uint16_t tsr_nfc_compositions[];

#endif
