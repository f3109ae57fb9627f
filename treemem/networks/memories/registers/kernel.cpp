// Registers with a controller: Graves et al. 2014, eq. 1-9.

#include "controller.h"

// A control has the value that is written, tanh; what addresses rows for reading and for writing, see Address; the key
// that is written, tanh; and what is erased, sigmoid.
//
// The state of a sequence has the rows that are written, then the weights of reading and of writing.

// Both are declared in native.py.
struct Fields { FIELDS };
struct MemoryGradients { MEMORY_GRADIENTS };

namespace {

// With torch's threshold.
T softplus(T x) {
  return x > T(20) ? x : std::log1p(std::exp(x));
}
T softplus_slope(T value) {
  return value > T(20) ? T(1) : -std::expm1(-value);
}

// Rows: the prefix, then those that are written.
template <typename Entry>
struct Rows {
  Entry *prefix, *written;
  int64_t before, width;
  Entry* operator[](int64_t i) const { return i < before ? prefix + i * width : written + (i - before) * width; }
};

// What addresses rows: a key; with `cosine` its strength, softplus; with `location` the gate, sigmoid, shifts, softmax,
// and the exponent, 1 + softplus.
struct Address {
  static constexpr T kEps = T(1e-6);
  const int64_t K, cosine, location, max_shift, shifts;

  explicit Address(const Fields& f)
      : K(f.key_size ? f.key_size : f.value_size), cosine(f.cosine), location(f.location), max_shift(f.max_shift),
        shifts(2 * f.max_shift + 1) {}

  int64_t size() const { return K + cosine + location * (shifts + 2); }
  int64_t gate_at() const { return K + cosine; }
  int64_t exponent_at() const { return gate_at() + 1 + shifts; }

  // How weights came about, with an entry for each row. Both passes compute it.
  struct Kept {
    Buffer<T> similarity, length, content, mixed, moved, powers, weights, d_moved, d_shifts;
    T largest, total;

    Kept(int64_t rows, int64_t shifts)
        : similarity(rows), length(rows), content(rows), mixed(rows), moved(rows), powers(rows), weights(rows),
          d_moved(rows), d_shifts(shifts) {}
  };

  void activate(T* c) const {
    if (cosine) c[K] = softplus(c[K]);
    if (!location) return;
    c[gate_at()] = sigmoid(c[gate_at()]);
    softmax(c + gate_at() + 1, shifts);
    c[exponent_at()] = T(1) + softplus(c[exponent_at()]);
  }

  int64_t source(int64_t row, int64_t shift, int64_t count) const {
    const int64_t from = (row - (shift - max_shift)) % count;
    return from < 0 ? from + count : from;
  }

  void weights(const T* c, Rows<const T> rows, int64_t count, const T* last, Kept& kept) const {
    const T squares = dot(c, c, K) + kEps;
    for (int64_t i = 0; i < count; ++i) {
      const T* row = rows[i];
      kept.similarity[i] = dot(c, row, K);
      if (!cosine) {
        kept.content[i] = kept.similarity[i];
        continue;
      }
      kept.length[i] = std::sqrt(squares * (dot(row, row, K) + kEps));
      kept.similarity[i] /= kept.length[i];
      kept.content[i] = c[K] * kept.similarity[i];
    }
    softmax(kept.content.get(), count);
    if (!location) return void(std::copy_n(kept.content.get(), count, kept.weights.get()));
    const T gate = c[gate_at()], *shift = c + gate_at() + 1, power = c[exponent_at()];
    for (int64_t i = 0; i < count; ++i) kept.mixed[i] = gate * kept.content[i] + (T(1) - gate) * last[i];
    for (int64_t i = 0; i < count; ++i) {
      kept.moved[i] = 0;
      for (int64_t s = 0; s < shifts; ++s) kept.moved[i] += shift[s] * kept.mixed[source(i, s, count)];
    }
    kept.largest = *std::max_element(kept.moved.get(), kept.moved.get() + count);
    kept.total = 0;  // dividing by the largest weight keeps powers above 0
    for (int64_t i = 0; i < count; ++i) kept.total += kept.powers[i] = std::pow(kept.moved[i] / kept.largest, power);
    for (int64_t i = 0; i < count; ++i) kept.weights[i] = kept.powers[i] / kept.total;
  }

  // d of the weights becomes d of the weights before.
  void backward(const T* c, Rows<const T> rows, int64_t count, const T* last, Kept& kept, T* d, T* d_c,
                Rows<T> d_rows) const {
    std::fill_n(d_c, size(), T(0));
    T* d_content = kept.powers.get();  // read before it is written
    if (location) {
      const T gate = c[gate_at()], *shift = c + gate_at() + 1, power = c[exponent_at()];
      const T mean = dot(static_cast<const T*>(d), static_cast<const T*>(kept.weights.get()), count);
      T of_power = 0, of_gate = 0;
      for (int64_t i = 0; i < count; ++i) {
        const T base = kept.moved[i] / kept.largest, of_this = (d[i] - mean) / kept.total;
        kept.d_moved[i] = of_this * power * std::pow(base, power - T(1)) / kept.largest;
        if (base > T(0)) of_power += of_this * kept.powers[i] * std::log(base);
      }
      std::fill_n(d, count, T(0));
      std::fill_n(kept.d_shifts.get(), shifts, T(0));
      for (int64_t i = 0; i < count; ++i)
        for (int64_t s = 0; s < shifts; ++s) {
          const int64_t from = source(i, s, count);
          kept.d_shifts[s] += kept.d_moved[i] * kept.mixed[from];
          d[from] += kept.d_moved[i] * shift[s];
        }
      for (int64_t i = 0; i < count; ++i) {
        of_gate += d[i] * (kept.content[i] - last[i]);
        d_content[i] = gate * d[i];
        d[i] *= T(1) - gate;
      }
      softmax_backward(shift, kept.d_shifts.get(), shifts);
      d_c[gate_at()] = of_gate * gate * (T(1) - gate);
      std::copy_n(kept.d_shifts.get(), shifts, d_c + gate_at() + 1);
      d_c[exponent_at()] = of_power * softplus_slope(power - T(1));
    } else {
      std::copy_n(d, count, d_content);
      std::fill_n(d, count, T(0));
    }
    softmax_backward(static_cast<const T*>(kept.content.get()), d_content, count);
    const T squares = dot(c, c, K) + kEps;
    T of_strength = 0;
    for (int64_t i = 0; i < count; ++i) {
      const T *row = rows[i], similarity = kept.similarity[i];
      T d_score = d_content[i];
      if (cosine) {
        of_strength += d_score * similarity;
        d_score *= c[K];
        const T of_row = similarity * squares / (kept.length[i] * kept.length[i]), of_key = similarity / squares;
        add_scaled(d_c, -d_score * of_key, c, K);
        add_scaled(d_rows[i], -d_score * of_row, row, K);
        d_score /= kept.length[i];
      }
      add_scaled(d_c, d_score, row, K);
      add_scaled(d_rows[i], d_score, c, K);
    }
    if (cosine) d_c[K] = of_strength * softplus_slope(c[K]);
  }
};

struct Registers {
  const Problem& p;
  const Fields& f;
  const MemoryGradients* gradients;
  const Address address;
  const int64_t V, W, N, all;  // widths of a content and a row; rows that are written, and all
  const States states;

  struct Buffers {
    Address::Kept read, write;
    Buffer<T> written, d_written, d_erased;

    explicit Buffers(const Registers& m)
        : read(m.all, m.address.shifts), write(m.N, m.address.shifts), written(m.W), d_written(m.W), d_erased(m.W) {}
  };

  Registers(const Problem& p, const Fields& f, const MemoryGradients* gradients)
      : p(p), f(f), gradients(gradients), address(f), V(f.value_size), W(f.key_size + f.value_size), N(f.rows),
        all(f.prefix + f.rows), states{p, f.first, f.all, f.last, N * W + all + N} {}

  // Parts of a state, and of a control.
  T* read_weights(T* state) const { return state + N * W; }
  T* write_weights(T* state) const { return state + N * W + all; }
  int64_t reading() const { return V; }
  int64_t writing() const { return V + address.size(); }
  int64_t key() const { return V + 2 * address.size(); }
  int64_t erased() const { return key() + f.key_size; }

  Rows<const T> readable(const T* state, int64_t row) const {
    return {f.read_only + row * f.prefix * W, state, f.prefix, W};
  }
  Rows<const T> writable(const T* state) const { return {nullptr, state, 0, W}; }

  void addresses(const T* control, T* old, int64_t row, Buffers& buffers) const {
    address.weights(control + reading(), readable(old, row), all, read_weights(old), buffers.read);
    address.weights(control + writing(), writable(old), N, write_weights(old), buffers.write);
  }

  void choose(const T* weights, int64_t count, T* chosen) const {
    if (!f.hard) return void(std::copy_n(weights, count, chosen));
    const T* largest = std::max_element(weights, weights + count);
    for (int64_t i = 0; i < count; ++i) chosen[i] = weights[i] != weights[i] ? weights[i] : T(weights + i == largest);
  }

  void fill_written(const T* control, T* written) const {
    std::copy_n(control + key(), f.key_size, written);
    std::copy_n(control, V, written + f.key_size);
  }

  void forward(Place at, T* control, T* readout, Buffers& buffers) const {
    if (p.num_blocks) activate(control);
    T *old = states.before(at), *now = states.after(at), *written = buffers.written.get();
    addresses(control, old, at.row, buffers);
    choose(buffers.read.weights.get(), all, read_weights(now));
    choose(buffers.write.weights.get(), N, write_weights(now));
    const Rows<const T> rows = readable(old, at.row);
    std::fill_n(readout, V, T(0));
    for (int64_t i = 0; i < all; ++i) add_scaled(readout, read_weights(now)[i], rows[i] + f.key_size, V);
    fill_written(control, written);
    const T* erased = control + this->erased();
    for (int64_t i = 0; i < N; ++i) {
      const T weight = write_weights(now)[i], *from = old + i * W;
      T* to = now + i * W;
      if (f.erases) {
        SIMD
        for (int64_t j = 0; j < W; ++j) to[j] = from[j] * (T(1) - weight * erased[j]) + weight * written[j];
      } else {
        SIMD
        for (int64_t j = 0; j < W; ++j) to[j] = from[j] + weight * (written[j] - from[j]);
      }
    }
    if (at.ends && f.all) std::copy_n(now, states.size, states.of_end(at));
  }

  void backward(Place at, const T* control, const T* d_readout, T* d_control, Buffers& buffers) const {
    T *old = states.before(at), *now = states.after(at);
    T* d = gradients->state + at.row * states.size;
    T *written = buffers.written.get(), *d_written = buffers.d_written.get(), *d_erased = buffers.d_erased.get();
    addresses(control, old, at.row, buffers);
    fill_written(control, written);
    std::fill_n(d_written, W, T(0));
    std::fill_n(d_erased, W, T(0));
    const T* erased = control + this->erased();
    for (int64_t i = 0; i < N; ++i) {
      const T weight = write_weights(now)[i], *row = old + i * W;
      T *d_row = d + i * W, of_weight = 0;
      SIMD_SUM(of_weight)
      for (int64_t j = 0; j < W; ++j) {
        const T share = f.erases ? erased[j] : T(1);
        of_weight += d_row[j] * (written[j] - row[j] * share);
        d_written[j] += weight * d_row[j];
        d_erased[j] -= weight * row[j] * d_row[j];
        d_row[j] *= T(1) - weight * share;
      }
      write_weights(d)[i] += of_weight;
    }
    const Rows<const T> rows = readable(old, at.row);
    const Rows<T> d_rows{gradients->read_only + at.row * f.prefix * W, d, f.prefix, W};
    for (int64_t i = 0; i < all; ++i) {
      read_weights(d)[i] += dot(rows[i] + f.key_size, d_readout, V);
      add_scaled(d_rows[i] + f.key_size, read_weights(now)[i], d_readout, V);
    }
    address.backward(control + reading(), rows, all, read_weights(old), buffers.read, read_weights(d),
                     d_control + reading(), d_rows);
    address.backward(control + writing(), writable(old), N, write_weights(old), buffers.write, write_weights(d),
                     d_control + writing(), Rows<T>{nullptr, d, 0, W});
    std::copy_n(d_written + f.key_size, V, d_control);
    std::copy_n(d_written, f.key_size, d_control + key());
    if (f.erases) std::copy_n(d_erased, W, d_control + this->erased());
    if (!p.num_blocks) return;
    for (int64_t i = 0; i < V; ++i) d_control[i] *= T(1) - control[i] * control[i];
    for (int64_t i = key(); i < this->erased(); ++i) d_control[i] *= T(1) - control[i] * control[i];
    for (int64_t i = this->erased(); i < p.control_size; ++i) d_control[i] *= control[i] * (T(1) - control[i]);
  }

  void activate(T* control) const {
    for (int64_t i = 0; i < V; ++i) control[i] = hyperbolic_tangent(control[i]);
    address.activate(control + reading());
    address.activate(control + writing());
    for (int64_t i = key(); i < erased(); ++i) control[i] = hyperbolic_tangent(control[i]);
    for (int64_t i = erased(); i < p.control_size; ++i) control[i] = sigmoid(control[i]);
  }
};

}  // namespace

RUN(Registers)
