// Attention by products of tiles, for bfloat16 on CPUs with a matrix unit.
//
// Scores of 16 queries and up to 256 keys stay in the nearest cache, with these keys and their values,
// until they have become weights, in place, and been used. A short text's heads go through each step
// together, so that one's waits are another's work. Chunks of 32 keys start at multiples of 32 and
// blocks of keys at multiples of their size, so that a text's numbers do not depend on how work is
// divided.
#pragma once

#if defined(__AMX_BF16__)

#include "amx_operands.h"
#include "amx_softmax.h"
#include "attention_problem.h"
#include "scratch.h"

#include <algorithm>
#include <cstring>

namespace infinity {

class TileAttention {
  static constexpr int64_t kQueryBlock = kMatrixRows;
  static constexpr int64_t kKeyBlock = 256;
  static constexpr int64_t kMaxTogether = 8;  // blocks of queries that go through each step together,
  static constexpr int64_t kScoresTogether = kQueryBlock * (kKeyBlock / 2 + kLanes);  // and their scores
  static constexpr int64_t kRowGap = kLanes;  // an odd number of cache lines per row: they fall into different sets

 public:
  using Problem = AttentionProblem<BFloat16>;
  static constexpr int64_t kItemBlock = kTileDepth;  // of rows, as keys are packed
  static constexpr int64_t kMaxRows = 512;  // of an item

  explicit TileAttention(const Problem& problem)
      : p(problem),
        scale2(problem.adjustment.softmax_scale() * kLog2E),
        width(round_up(problem.dim, kTileDepth)),
        v_width(round_up(problem.v_dim, kTileDepth)),
        tiles_(TileConfig::full()) {}

  // False when there is no memory.
  bool reserve(Scratch& scratch) {
    const int64_t halves[] = {kMaxRows * width, kMaxRows * v_width, kQueryBlock * width, kMatrixRows * width, v_width};
    BFloat16** const half_slots[] = {&keys_, &values_, &queries_, &spare_, &zeros_};
    const int64_t floats[] = {kQueryBlock * (kKeyBlock + kRowGap), kMaxTogether * kQueryBlock * v_width, kKeyBlock + kQueryBlock,
                              kMaxRows * v_width, kMaxRows, kMaxRows};
    float** const float_slots[] = {&scores_, &products_, &biases_, &sums_, &tops_, &totals_};
    int64_t total = 0;
    for (const int64_t size : halves) total += size / 2;
    for (const int64_t size : floats) total += size;
    if (!scratch.reserve(total, 11)) return false;
    for (int i = 0; i < 5; ++i) *half_slots[i] = reinterpret_cast<BFloat16*>(scratch.take(halves[i] / 2));
    for (int i = 0; i < 6; ++i) *float_slots[i] = scratch.take(floats[i]);
    std::fill_n(zeros_, v_width, BFloat16{0});
    return true;
  }

  void run(const AttentionItem& item) const {
    clear_blind_queries(item);
    const int64_t key_end = item.end_key(p, item.end_query - 1);
    for (int64_t k0 = first_block(item.first_query); k0 < key_end; k0 += kKeyBlock)
      attend_keys(item, k0, std::min(k0 + kKeyBlock, key_end));
  }

 private:
  // A block of queries of one head, and what it sees of the packed keys.
  struct Block {
    int64_t head, query, rows;
    int64_t key, num_keys;  // the first is a multiple of 32
    bool is_first, is_last;
    TileColumns keys, values;
    float* scores;
    float* products;
    int64_t state;  // where sums, tops and totals of its rows lie between blocks of keys
    float corrections[kQueryBlock], inverses[kQueryBlock];  // of what was summed before, of the totals

    int64_t columns() const { return round_up(num_keys, kLanes); }
    int64_t row() const { return round_up(num_keys, kTileDepth) + kRowGap; }
    __mmask16 last_keys() const { return first_lanes(num_keys - (columns() - kLanes)); }  // of the last vector
  };

  // Start of the first block of keys that a query sees.
  int64_t first_block(int64_t query) const { return p.first_key(query) / kKeyBlock * kKeyBlock; }

  // Queries in front of which no key stands: zeros.
  void clear_blind_queries(const AttentionItem& item) const {
    if (item.num_keys == item.length) return;
    for (int64_t query = item.first_query; query < item.end_query; ++query)
      if (p.first_key(query) >= item.end_key(p, query))
        for (int64_t head = item.first_head; head < item.end_head; ++head)
          std::memset(p.out.at(item.rows[query], head), 0, p.v_dim * sizeof(BFloat16));
  }

  void attend_keys(const AttentionItem& item, int64_t k0, int64_t k1) const {
    const int64_t padded = round_up(k1 - k0, kTileDepth), first_kv = p.kv_head(item.first_head);
    Block blocks[kMaxTogether];
    int64_t count = 0, used = 0;
    int64_t packed = first_kv - 1;
    for (int64_t head = item.first_head; head < item.end_head; ++head) {
      const int64_t kv_head = p.kv_head(head), slot = (kv_head - first_kv) * padded;
      if (packed != kv_head) pack(item, packed = kv_head, k0, k1 - k0, slot);
      for (int64_t query = item.first_query; query < item.end_query; query += kQueryBlock) {
        Block block = block_of(item, head, query, k0, k1, slot);
        if (block.num_keys <= 0) continue;
        const int64_t size = kQueryBlock * block.row();
        if (count == kMaxTogether || (count > 0 && used + size > kScoresTogether)) {
          attend_blocks(item, blocks, count);
          count = used = 0;
        }
        block.scores = scores_ + used;
        block.products = products_ + count * kQueryBlock * v_width;
        used += size;
        blocks[count++] = block;
      }
    }
    attend_blocks(item, blocks, count);
  }

  void pack(const AttentionItem& item, int64_t kv_head, int64_t k0, int64_t keys, int64_t slot) const {
    const TokenRows tokens = item.rows.from(k0);
    pack_key_tiles([&](int64_t i) { return p.k.at(tokens[i], kv_head); }, keys, p.dim, width, spare_, keys_ + slot * width);
    pack_value_tiles([&](int64_t i) { return p.v.at(tokens[i], kv_head); }, keys, p.v_dim, v_width, zeros_,
                     values_ + slot * v_width);
  }

  Block block_of(const AttentionItem& item, int64_t head, int64_t query, int64_t k0, int64_t k1, int64_t slot) const {
    Block block;
    block.head = head;
    block.query = query;
    block.rows = std::min(kQueryBlock, item.end_query - query);
    const int64_t end = item.end_key(p, query + block.rows - 1);
    block.key = std::max(k0, p.first_key(query) / kTileDepth * kTileDepth);
    block.num_keys = std::min(k1, end) - block.key;
    block.is_first = k0 == first_block(query);
    block.is_last = end <= k0 + kKeyBlock;
    const int64_t packed_key = slot + block.key - k0;
    block.keys = {keys_ + packed_key * width, kMatrixRows * width, kTileSize};
    block.values = {values_ + packed_key * v_width, kTileSize, kTileDepth * v_width};
    block.state = (head - item.first_head) * item.num_queries() + query - item.first_query;
    return block;
  }

  void attend_blocks(const AttentionItem& item, Block* blocks, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) multiply_keys(item, blocks[i]);
    for (int64_t i = 0; i < count; ++i) take_weights(item, blocks[i]);
    for (int64_t i = 0; i < count; ++i) multiply_values(blocks[i]);
    for (int64_t i = 0; i < count; ++i) finish(item, blocks[i]);
  }

  void multiply_keys(const AttentionItem& item, const Block& block) const {
    multiply_tiles(queries_of(item, block), block.keys, {block.scores, block.row()}, block.columns() / kMatrixRows,
                   width / kTileDepth);
  }

  // Queries where they lie, whole tiles even if the last are others'; copied if that cannot be.
  TileRows queries_of(const AttentionItem& item, const Block& block) const {
    const TokenRows tokens = item.rows.from(block.query);
    const auto row = [&](int64_t i) { return p.q.at(tokens[i], block.head); };
    if (p.dim == width && tokens.table == nullptr && tokens[kQueryBlock] <= p.num_rows) return {row(0), p.q.token_stride};
    copy_rows(row, block.rows, p.dim, queries_, width);
    return {queries_, width};
  }

  void adjust(const Block& block) const {
    const int64_t columns = block.columns(), last = block.rows - 1;
    p.adjustment.expand(block.head, block.key - (block.query + last), columns + last, biases_);
    for (int64_t r = 0; r < block.rows; ++r)
      p.adjustment.apply(block.scores + r * block.row(), biases_ + (last - r), columns);
  }

  // Scores become weights.
  void take_weights(const AttentionItem& item, Block& block) const {
    if (!p.adjustment.is_none()) adjust(block);
    const __mmask16 is_row = first_lanes(block.rows);
    float *const state_top = tops_ + block.state, *const state_total = totals_ + block.state;
    Vec rows[kMatrixRows];
    Visible visible[kMatrixRows];
    find_tops(item, block, visible, rows);
    const Vec found = reduce_rows(rows, [](__m512 a, __m512 b) { return (__m512)vmax((Vec)a, (Vec)b); });
    const Vec old_top = block.is_first ? splat(kMasked) : (Vec)_mm512_maskz_loadu_ps(is_row, state_top);
    const Vec top = vmax(old_top, found == kMasked ? found : found * scale2);
    float tops[kMatrixRows];
    store(tops, top);
    write_weights(item, block, visible, tops, rows);
    Vec total = reduce_rows(rows, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
    if (!block.is_first) {
      const Vec correction = exp_nonpositive((old_top - top) * kLn2);
      total += (Vec)_mm512_maskz_loadu_ps(is_row, state_total) * correction;
      store(block.corrections, correction);
    }
    store(block.inverses, total == 0.f ? Vec{} : 1.f / total);
    _mm512_mask_storeu_ps(state_top, is_row, (__m512)top);
    _mm512_mask_storeu_ps(state_total, is_row, (__m512)total);
  }

  // The largest score of each row, still one per lane, and what it sees if rows see different keys.
  void find_tops(const AttentionItem& item, const Block& block, Visible* visible, Vec* tops) const {
    const int64_t columns = block.columns(), stride = block.row();
    if (!sees_all()) {
      for (int64_t r = 0; r < kQueryBlock; ++r) {
        visible[r] = r < block.rows ? visible_to(item, block, block.query + r) : Visible{};
        tops[r] = visible[r].is_empty() ? splat(kMasked) : top_of(block.scores + r * stride, columns, visible[r]);
      }
    } else if (columns == kLanes) {
      tops_of_narrow(block.scores, stride, block.last_keys(), tops);
    } else {
      for (int64_t r = 0; r < kQueryBlock; ++r) tops[r] = top_of_all(block.scores + r * stride, columns, block.last_keys());
    }
  }

  // Weights over the scores, and their sum for each row, still one per lane.
  void write_weights(const AttentionItem& item, const Block& block, const Visible* visible, const float* tops, Vec* totals) const {
    const int64_t columns = block.columns(), stride = block.row();
    const bool is_open = sees_all();
    if (is_open && columns == kLanes) return store_narrow_weights(block.scores, stride, block.last_keys(), scale2, tops, totals);
    const __mmask16 last = is_open ? block.last_keys() : first_lanes(kLanes);
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const row = block.scores + r * stride;
      totals[r] = !is_open && visible[r].is_empty() ? store_no_weights(row, columns)
                                                    : store_weights(row, columns, last, scale2, tops[r]);
      if (block.is_first) fetch_next_head(item, block, r);
    }
  }

  // What the next head will read of a token. Its lines lie between those of other heads, where no
  // hardware looks ahead.
  void fetch_next_head(const AttentionItem& item, const Block& block, int64_t row) const {
    const int64_t head = block.head + 1, token = item.rows[block.query + row];
    if (head == p.heads) return;
    // GCC takes a function that only calls the builtin for one without effect, and drops it.
    const auto fetch = [](const BFloat16* numbers) { asm volatile("prefetcht0 %0" : : "m"(*numbers)); };
    fetch(p.q.at(token, head));
    if (p.kv_head(head) == p.kv_head(block.head)) return;
    fetch(p.k.at(token, p.kv_head(head)));
    fetch(p.v.at(token, p.kv_head(head)));
  }

  // Whether all queries see the same keys.
  bool sees_all() const { return !p.causal && p.window < 0; }

  Visible visible_to(const AttentionItem& item, const Block& block, int64_t query) const {
    return {std::clamp<int64_t>(p.first_key(query) - block.key, 0, block.num_keys),
            std::clamp<int64_t>(item.end_key(p, query) - block.key, 0, block.num_keys)};
  }

  void multiply_values(const Block& block) const {
    const TileRows weights{reinterpret_cast<const BFloat16*>(block.scores), 2 * block.row()};
    multiply_tiles(weights, block.values, {block.products, v_width}, v_width / kMatrixRows,
                   round_up(block.num_keys, kTileDepth) / kTileDepth);
  }

  // Adds what was summed over earlier blocks of keys, and keeps the sums or writes their quotients.
  void finish(const AttentionItem& item, const Block& block) const {
    for (int64_t r = 0; r < block.rows; ++r) {
      float* const products = block.products + r * v_width;
      float* const sums = sums_ + (block.state + r) * v_width;
      if (!block.is_first) add_earlier(sums, block.corrections[r], products);
      if (block.is_last)
        write_quotients(products, block.inverses[r], p.out.at(item.rows[block.query + r], block.head));
      else
        std::memcpy(sums, products, v_width * sizeof(float));
    }
  }

  void add_earlier(const float* sums, float correction, float* products) const {
    for (int64_t d = 0; d < v_width; d += kLanes) store(products + d, load(products + d) + load(sums + d) * correction);
  }

  void write_quotients(const float* products, float inverse, BFloat16* out) const {
    const auto quotients = [&](int64_t d) {
      return restore_order((__m512i)_mm512_cvtne2ps_pbh((__m512)(load(products + d + kLanes) * inverse),
                                                        (__m512)(load(products + d) * inverse)));
    };
    int64_t d = 0;
    for (; d + kTileDepth <= p.v_dim; d += kTileDepth) _mm512_storeu_si512(out + d, quotients(d));
    if (d < v_width) _mm512_mask_storeu_epi16(out + d, first_lanes32(p.v_dim - d), quotients(d));
  }

  const Problem& p;
  const float scale2;            // of scores whose weights are powers of two
  const int64_t width, v_width;  // of a key and a value, in whole tiles
  const Tiles tiles_;
  BFloat16 *keys_, *values_, *queries_, *spare_, *zeros_;
  float *scores_, *products_, *biases_, *sums_, *tops_, *totals_;
};

}  // namespace infinity

#endif
