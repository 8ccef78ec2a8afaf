// bool to float for Eigen 3.4, as a conversion of the byte that a bool is. GCC before 13 does not
// vectorize the conversion of a bool itself, and is six times as slow with it.
#pragma once
#include <Eigen/Core>

namespace Eigen {
namespace internal {

template <>
struct cast_impl<bool, float, void> {
  EIGEN_DEVICE_FUNC static inline float run(const bool& x) {
    return static_cast<float>(static_cast<int>(reinterpret_cast<const unsigned char&>(x)));
  }
};

}  // namespace internal
}  // namespace Eigen
