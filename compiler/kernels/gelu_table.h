// gelu(x) as max(x, 0) less a small function of |x|, which is even for the exact gelu and for its form
// with tanh. The function is read from a table of parabolas: far fewer instructions than erf or tanh.
#pragma once

#include "kernel_common.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace infinity {

// For |x| in [(i - 1/2) / 7, (i + 1/2) / 7]: the coefficients of 1, |x| and x^2, nearly minimax. Beyond
// the last one the function is below the error.
struct GeluTable {
  static constexpr float kPerUnit = 7.f, kLast = 31.4f / 7.f;
  float coefficients[3][32];
};

constexpr GeluTable kExactGelu = {{
    {0.f, 6.9663023e-05f, 0.0012262134f, 0.0060248505f, 0.017858734f, 0.039910764f, 0.074113853f, 0.12039447f,
     0.17639062f, 0.23770438f, 0.29861087f, 0.3530387f, 0.39558735f, 0.42236173f, 0.43155071f, 0.42312109f,
     0.39937466f, 0.36361164f, 0.31990075f, 0.27237388f, 0.22471917f, 0.17984992f, 0.13975939f, 0.10553667f,
     0.077496782f, 0.05537203f, 0.038517736f, 0.026097849f, 0.017230965f, 0.011090288f, 0.0069607315f, 0.0042616855f},
    {0.49997729f, 0.49849078f, 0.48811418f, 0.46159399f, 0.41452262f, 0.34608069f, 0.25908238f, 0.15937464f,
     0.054749157f, -0.046388213f, -0.1363223f, -0.20907536f, -0.2610442f, -0.29117751f, -0.30081865f, -0.29275891f,
     -0.27136174f, -0.24104267f, -0.20607942f, -0.17010482f, -0.13587472f, -0.10521212f, -0.079086035f, -0.057772905f,
     -0.041052029f, -0.028396171f, -0.019132704f, -0.012563768f, -0.0080443891f, -0.0050242534f, -0.0030620263f, -0.0018215472f},
    {-0.3983283f, -0.39045855f, -0.36700544f, -0.33024845f, -0.28336194f, -0.23020281f, -0.17484312f, -0.12111373f,
     -0.072224095f, -0.030505534f, 0.0027010068f, 0.027017506f, 0.042888507f, 0.05136786f, 0.053896729f, 0.051970199f,
     0.04714974f, 0.040723309f, 0.033731271f, 0.026923286f, 0.020776127f, 0.015537348f, 0.011280714f, 0.0079622455f,
     0.005469386f, 0.0036594651f, 0.0023865774f, 0.0015179673f, 0.00094207947f, 0.00057072612f, 0.00033762466f, 0.00019509083f}
}};

constexpr GeluTable kTanhGelu = {{
    {0.f, 6.9992078e-05f, 0.0012313427f, 0.0060447329f, 0.017896462f, 0.039938305f, 0.074050277f, 0.12010814f,
     0.17574134f, 0.23662218f, 0.29718313f, 0.35156161f, 0.39454335f, 0.4223114f, 0.43290159f, 0.42621806f,
     0.40400231f, 0.36924863f, 0.32575828f, 0.27757514f, 0.22849844f, 0.18171193f, 0.13955872f, 0.10346591f,
     0.074000299f, 0.051020589f, 0.033882566f, 0.021654174f, 0.01330567f, 0.0078531178f, 0.0044476124f, 0.0024146361f},
    {0.49997717f, 0.49848363f, 0.48806357f, 0.46146077f, 0.41431653f, 0.34590369f, 0.25913435f, 0.15990409f,
     0.055955362f, -0.044467703f, -0.13388951f, -0.20657274f, -0.25906482f, -0.29030812f, -0.30140337f, -0.29503286f,
     -0.2750206f, -0.24556114f, -0.21077748f, -0.17430879f, -0.13905928f, -0.10708777f, -0.079618081f, -0.057140291f,
     -0.039568782f, -0.026423186f, -0.017003009f, -0.010534626f, -0.0062788399f, -0.0035966567f, -0.0019781245f, -0.0010435338f},
    {-0.39832529f, -0.39041799f, -0.36686572f, -0.32999271f, -0.28303179f, -0.22989327f, -0.17467749f, -0.12120409f,
     -0.072630048f, -0.031206205f, 0.0018104357f, 0.026102301f, 0.042131353f, 0.050920736f, 0.05382688f, 0.052308969f,
     0.047801785f, 0.041558385f, 0.034602907f, 0.02770192f, 0.021372054f, 0.015909862f, 0.011434415f, 0.0079346085f,
     0.0053148665f, 0.0034348103f, 0.0021402843f, 0.0012848738f, 0.0007424957f, 0.00041263725f, 0.00022032324f, 0.00011290958f}
}};

// Absolute error below 2e-5, less than what rounding to bfloat16 adds where |gelu(x)| > 0.01. NaN stays NaN.
inline Vec gelu_for_bfloat16(Vec x, const GeluTable& table) {
  const auto look_up = [&](int power, __m512i index) {
    const float* const row = table.coefficients[power];
    return _mm512_permutex2var_ps(_mm512_loadu_ps(row), index, _mm512_loadu_ps(row + kLanes));
  };
  // The operand order of min keeps NaN.
  const __m512 size = _mm512_min_ps(_mm512_set1_ps(GeluTable::kLast), _mm512_abs_ps((__m512)x));
  // 1.5 * 2^23 rounds to an integer in the low bits, five of which are the index.
  const __m512i index = (__m512i)_mm512_fmadd_ps(size, _mm512_set1_ps(GeluTable::kPerUnit), _mm512_set1_ps(12582912.f));
  const __m512 slope = _mm512_fmadd_ps(look_up(2, index), size, look_up(1, index));
  const __m512 less = _mm512_fmadd_ps(slope, size, look_up(0, index));
  return (Vec)_mm512_sub_ps(_mm512_max_ps((__m512)x, _mm512_setzero_ps()), less);
}

}  // namespace infinity

#endif
