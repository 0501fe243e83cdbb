"""Names of the ATen operators that a plan file may call beside the described ones: pure functions, every one.

Written by `python -m tests.support.safe_operators`, whose rule says which these are; a test holds the names against the
schemas of the installed PyTorch. Names that a version does not have do no harm. Without `aten.`, an overload behind a
dot where it is not `default`.
"""

from __future__ import annotations

SAFE_ATEN = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _cdist_backward _cdist_forward _conj _conj_physical _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm
    _fused_rms_norm_backward _grouped_mm _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
    _log_softmax _log_softmax_backward_data _native_batch_norm_legit_functional _neg_view _pdist_backward _pdist_forward
    _prelu_kernel _prelu_kernel_backward _safe_softmax _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data _stack _to_copy _trilinear
    _unique2 _unsafe_view _upsample_bicubic2d_aa _upsample_bicubic2d_aa.vec _upsample_bicubic2d_aa_backward
    _upsample_bilinear2d_aa _upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d
    _upsample_nearest_exact1d.vec _upsample_nearest_exact1d_backward _upsample_nearest_exact2d
    _upsample_nearest_exact2d.vec _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d.vec _upsample_nearest_exact3d_backward _weight_norm _weight_norm_interface
    _weight_norm_interface_backward abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward add.Scalar add.Tensor addbmm addcdiv addcmul addmm addmm.dtype addmv addr adjoint
    affine_grid_generator affine_grid_generator_backward alias alias_copy all all.dim all.dims alpha_dropout amax amin
    aminmax angle any any.dim any.dims arange arange.start arange.start_step arccos arccosh arcsin arcsinh arctan
    arctan2 arctanh argmax argmin argsort argsort.stable argwhere as_strided as_strided_copy as_strided_scatter asin
    asinh atan atan2 atanh atleast_1d atleast_1d.Sequence atleast_2d atleast_2d.Sequence atleast_3d atleast_3d.Sequence
    avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm baddbmm.dtype bartlett_window
    bartlett_window.periodic bernoulli bernoulli.Tensor bernoulli.p bilinear binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits bincount binomial bitwise_and.Scalar
    bitwise_and.Scalar_Tensor bitwise_and.Tensor bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor
    bitwise_left_shift.Tensor_Scalar bitwise_not bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor
    bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar
    bitwise_xor.Scalar_Tensor bitwise_xor.Tensor blackman_window blackman_window.periodic block_diag bmm bmm.dtype
    broadcast_tensors broadcast_to bucketize.Scalar bucketize.Tensor cartesian_prod cat cauchy cdist ceil celu
    chain_matmul chalf channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp clamp.Tensor clamp_max
    clamp_max.Tensor clamp_min clamp_min.Tensor clip clip.Tensor clone col2im column_stack combinations complex concat
    concatenate conj conj_physical constant_pad_nd contiguous conv1d conv1d.padding conv2d conv2d.padding conv3d
    conv3d.padding conv_depthwise3d conv_tbc conv_tbc_backward conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution convolution_backward copy copysign.Scalar copysign.Tensor corrcoef cos cosh
    cosine_embedding_loss cosine_similarity count_nonzero count_nonzero.dim_IntList cov cross cross_entropy_loss
    ctc_loss.IntList ctc_loss.Tensor cummax cummaxmin_backward cummin cumprod cumprod_backward cumsum
    cumulative_trapezoid.dx cumulative_trapezoid.x data deg2rad det detach detach_copy diag diag_embed diagflat diagonal
    diagonal_backward diagonal_copy diagonal_scatter diff digamma dist div.Scalar div.Scalar_mode div.Tensor
    div.Tensor_mode divide.Scalar divide.Scalar_mode divide.Tensor divide.Tensor_mode dot dropout dsplit.array
    dsplit.int dstack einsum elu elu_backward embedding embedding_backward embedding_bag embedding_bag.padding_idx
    embedding_dense_backward embedding_renorm empty.memory_format empty_like empty_permuted empty_strided eq.Scalar
    eq.Tensor erf erfc erfinv exp exp2 expand expand_as expand_copy expm1 exponential eye eye.m feature_alpha_dropout
    feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2
    fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2
    fft_rfftfreq fft_rfftn fill.Scalar fill.Tensor fix flatten.using_ints flatten_dense_tensors flip fliplr flipud
    float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor floor floor_divide floor_divide.Scalar fmax
    fmin fmod.Scalar fmod.Tensor frac fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d
    fractional_max_pool3d_backward frexp.Tensor frobenius_norm.dim full full_like gather gather_backward gcd ge.Scalar
    ge.Tensor gelu gelu_backward geometric geqrf ger glu glu_backward glu_backward_jvp glu_jvp gradient.array
    gradient.scalararray gradient.scalarint gradient.scalarrayarray gradient.scalarrayint gradient.tensorarray
    gradient.tensorarrayint greater.Scalar greater.Tensor greater_equal.Scalar greater_equal.Tensor grid_sampler
    grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward group_norm gt.Scalar gt.Tensor
    hamming_window hamming_window.periodic hamming_window.periodic_alpha hamming_window.periodic_alpha_beta hann_window
    hann_window.periodic hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward
    hardtanh hardtanh_backward hash_tensor heaviside hinge_embedding_loss histc histogram.bin_ct histogram.bins_tensor
    histogramdd histogramdd.TensorList_bins histogramdd.int_bins hsplit.array hsplit.int hstack huber_loss
    huber_loss_backward hypot i0 igamma igammac im2col imag index.Tensor index_add index_copy index_fill.int_Scalar
    index_fill.int_Tensor index_put index_reduce index_select index_select_backward
    infinitely_differentiable_gelu_backward inner inverse isclose isfinite isin.Scalar_Tensor isin.Tensor_Scalar
    isin.Tensor_Tensor isinf isnan isneginf isposinf isreal istft kaiser_window kaiser_window.beta
    kaiser_window.periodic kl_div kron kthvalue l1_loss layer_norm lcm ldexp.Tensor le.Scalar le.Tensor leaky_relu
    leaky_relu_backward lerp.Scalar lerp.Tensor less.Scalar less.Tensor less_equal.Scalar less_equal.Tensor lgamma lift
    lift_fresh lift_fresh_copy linalg__powsum linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cond.p_str
    linalg_cross linalg_det linalg_diagonal linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh
    linalg_householder_product linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve
    linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve linalg_matmul linalg_matrix_exp
    linalg_matrix_norm linalg_matrix_norm.str_ord linalg_matrix_power linalg_matrix_rank
    linalg_matrix_rank.atol_rtol_float linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.tol_tensor
    linalg_multi_dot linalg_norm linalg_norm.ord_str linalg_pinv linalg_pinv.atol_rtol_float
    linalg_pinv.atol_rtol_tensor linalg_pinv.rcond_tensor linalg_qr linalg_slogdet linalg_solve linalg_solve_ex
    linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot
    linalg_vector_norm linear linear_backward linspace linspace.Scalar_Tensor linspace.Tensor_Scalar
    linspace.Tensor_Tensor log log10 log1p log2 log_normal log_sigmoid log_sigmoid_backward log_sigmoid_forward
    log_softmax.int logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor logit
    logit_backward logspace logspace.Scalar_Tensor logspace.Tensor_Scalar logspace.Tensor_Tensor logsumexp lt.Scalar
    lt.Tensor lu_solve lu_unpack mH mT margin_ranking_loss masked_fill.Scalar masked_fill.Tensor masked_scatter
    masked_scatter_backward masked_select masked_select_backward matmul matmul_backward matrix_H matrix_exp
    matrix_exp_backward matrix_power max max.dim max.other max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d max_pool3d_with_indices
    max_pool3d_with_indices_backward max_unpool2d max_unpool3d maximum mean mean.dim median median.dim meshgrid
    meshgrid.indexing min min.dim min.other minimum mish mish_backward mm mm.dtype mode moveaxis.int moveaxis.intlist
    movedim.int movedim.intlist mse_loss mse_loss_backward msort mul.Scalar mul.Tensor multi_margin_loss
    multi_margin_loss_backward multilabel_margin_loss multilabel_margin_loss_backward multilabel_margin_loss_forward
    multinomial multiply.Scalar multiply.Tensor mv mvlgamma nan_to_num nanmean nanmedian nanmedian.dim nanquantile
    nanquantile.scalar nansum narrow narrow.Tensor narrow_copy native_channel_shuffle native_dropout
    native_dropout_backward native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward
    native_norm native_norm.ScalarOpt_dim_dtype ne.Scalar ne.Tensor neg negative new_empty new_empty_strided new_full
    new_ones new_zeros nextafter nll_loss nll_loss2d nll_loss2d_backward nll_loss2d_forward nll_loss_backward
    nll_loss_forward nll_loss_nd nonzero nonzero_numpy nonzero_static norm.Scalar norm.ScalarOpt_dim
    norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype norm_except_dim normal.Tensor_Tensor normal.Tensor_float
    normal.float_Tensor normal.float_float normal_functional not_equal.Scalar not_equal.Tensor nuclear_norm
    nuclear_norm.dim numpy_T one_hot ones ones_like orgqr ormqr outer pad pad_sequence pairwise_distance pdist permute
    permute_copy pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma positive pow.Scalar
    pow.Tensor_Scalar pow.Tensor_Tensor prelu prod prod.dim_int put qr quantile quantile.scalar rad2deg rand
    rand.generator rand_like rand_like.generator randint randint.generator randint.low randint.low_generator
    randint_like randint_like.Tensor randint_like.Tensor_generator randint_like.generator randint_like.low_dtype
    randint_like.low_generator_dtype randn randn.generator randn_like randn_like.generator random random.from random.to
    randperm randperm.generator range range.step ravel real reciprocal reflection_pad1d reflection_pad1d_backward
    reflection_pad2d reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward relu relu6 remainder.Scalar
    remainder.Scalar_Tensor remainder.Tensor renorm repeat repeat_interleave.Tensor repeat_interleave.self_Tensor
    repeat_interleave.self_int replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward
    replication_pad3d replication_pad3d_backward reshape reshape_as resolve_conj resolve_neg rms_norm roll rot90 round
    round.decimals row_stack rrelu rrelu_with_noise_backward rrelu_with_noise_functional rsqrt rsub.Scalar rsub.Tensor
    scalar_tensor scaled_dot_product_attention scatter.reduce scatter.src scatter.value scatter.value_reduce scatter_add
    scatter_reduce.two searchsorted.Scalar searchsorted.Tensor select.int select_backward select_copy.int select_scatter
    selu sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh slice.Tensor slice_backward
    slice_copy.Tensor slice_inverse slice_scatter slogdet smooth_l1_loss smooth_l1_loss_backward soft_margin_loss
    soft_margin_loss_backward softmax.int softplus softplus_backward softshrink softshrink_backward sort sort.stable
    special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_t.n_scalar special_chebyshev_polynomial_t.x_scalar
    special_chebyshev_polynomial_u special_chebyshev_polynomial_u.n_scalar special_chebyshev_polynomial_u.x_scalar
    special_chebyshev_polynomial_v special_chebyshev_polynomial_v.n_scalar special_chebyshev_polynomial_v.x_scalar
    special_chebyshev_polynomial_w special_chebyshev_polynomial_w.n_scalar special_chebyshev_polynomial_w.x_scalar
    special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit
    special_expm1 special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h
    special_hermite_polynomial_h.n_scalar special_hermite_polynomial_h.x_scalar special_hermite_polynomial_he
    special_hermite_polynomial_he.n_scalar special_hermite_polynomial_he.x_scalar special_i0 special_i0e special_i1
    special_i1e special_laguerre_polynomial_l special_laguerre_polynomial_l.n_scalar
    special_laguerre_polynomial_l.x_scalar special_legendre_polynomial_p special_legendre_polynomial_p.n_scalar
    special_legendre_polynomial_p.x_scalar special_log1p special_log_ndtr special_log_softmax special_logit
    special_logsumexp special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri special_polygamma special_psi
    special_round special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_t.n_scalar
    special_shifted_chebyshev_polynomial_t.x_scalar special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_u.n_scalar special_shifted_chebyshev_polynomial_u.x_scalar
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_v.n_scalar
    special_shifted_chebyshev_polynomial_v.x_scalar special_shifted_chebyshev_polynomial_w
    special_shifted_chebyshev_polynomial_w.n_scalar special_shifted_chebyshev_polynomial_w.x_scalar special_sinc
    special_softmax special_spherical_bessel_j0 special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar
    special_xlogy special_xlogy.other_scalar special_xlogy.self_scalar special_zeta special_zeta.other_scalar
    special_zeta.self_scalar split.Tensor split.sizes split_copy.Tensor split_with_sizes split_with_sizes_copy sqrt
    square squeeze squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims stack std std.correction
    std.dim std_mean std_mean.correction std_mean.dim stft stft.center sub.Scalar sub.Tensor subtract.Scalar
    subtract.Tensor sum sum.dim_IntList sum_to_size svd swapaxes swapdims t t_copy take take_along_dim tan tanh
    tanh_backward tensor_split.indices tensor_split.sections tensor_split.tensor_indices_or_sections tensordot
    thnn_conv2d threshold threshold_backward tile to.dtype to.dtype_layout to.other to_dense to_dense_backward topk
    trace trace_backward transpose.int transpose_copy.int trapezoid.dx trapezoid.x trapz.dx trapz.x triangular_solve
    tril tril_indices triplet_margin_loss triu triu_indices true_divide.Scalar true_divide.Tensor trunc type_as
    unbind.int unbind_copy.int unflatten.int unflatten_dense_tensors unfold unfold_backward unfold_copy uniform
    unique_consecutive unique_dim unique_dim_consecutive unsqueeze unsqueeze_copy upsample_bicubic2d
    upsample_bicubic2d.vec upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d.vec
    upsample_bilinear2d_backward upsample_linear1d upsample_linear1d.vec upsample_linear1d_backward upsample_nearest1d
    upsample_nearest1d.vec upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d.vec
    upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d.vec upsample_nearest3d_backward
    upsample_trilinear3d upsample_trilinear3d.vec upsample_trilinear3d_backward value_selecting_reduction_backward
    vander var var.correction var.dim var_mean var_mean.correction var_mean.dim vdot view view.dtype view_as
    view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy view_copy.dtype vsplit.array
    vsplit.int vstack where where.Scalar where.ScalarOther where.ScalarSelf where.self xlogy.Scalar_Other
    xlogy.Scalar_Self xlogy.Tensor zero zeros zeros_like
    """.split()  # noqa: SIM905 - a thousand names in quotes are no easier to read
)
