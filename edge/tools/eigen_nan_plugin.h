// Methods of Eigen's ArrayBase that ONNX Runtime 1.21 calls and Eigen 3.4.0 has not yet: min and
// max that say what becomes of NaN. The functors are there; only these ways to them are missing.
// Eigen includes this file inside the class (EIGEN_ARRAYBASE_PLUGIN).

template <int NaNPropagation, typename OtherDerived>
EIGEN_DEVICE_FUNC EIGEN_STRONG_INLINE const CwiseBinaryOp<
    internal::scalar_min_op<Scalar, typename OtherDerived::Scalar, NaNPropagation>, const Derived,
    const OtherDerived>
(min)(const ArrayBase<OtherDerived>& other) const {
  return {derived(), other.derived()};
}

template <int NaNPropagation, typename OtherDerived>
EIGEN_DEVICE_FUNC EIGEN_STRONG_INLINE const CwiseBinaryOp<
    internal::scalar_max_op<Scalar, typename OtherDerived::Scalar, NaNPropagation>, const Derived,
    const OtherDerived>
(max)(const ArrayBase<OtherDerived>& other) const {
  return {derived(), other.derived()};
}

template <int NaNPropagation>
EIGEN_DEVICE_FUNC EIGEN_STRONG_INLINE const CwiseBinaryOp<
    internal::scalar_min_op<Scalar, Scalar, NaNPropagation>, const Derived,
    const CwiseNullaryOp<internal::scalar_constant_op<Scalar>, PlainObject>>
(min)(const Scalar& other) const {
  return (this->template min<NaNPropagation>)(PlainObject::Constant(rows(), cols(), other));
}

template <int NaNPropagation>
EIGEN_DEVICE_FUNC EIGEN_STRONG_INLINE const CwiseBinaryOp<
    internal::scalar_max_op<Scalar, Scalar, NaNPropagation>, const Derived,
    const CwiseNullaryOp<internal::scalar_constant_op<Scalar>, PlainObject>>
(max)(const Scalar& other) const {
  return (this->template max<NaNPropagation>)(PlainObject::Constant(rows(), cols(), other));
}
