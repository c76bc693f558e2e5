"builtin.module"() <{sym_name = "jit_perceptron"}> ({
  "func.func"() <{function_type = (tensor<?x4xf32>) -> (tensor<f32>, tensor<?x3xf32>), res_attrs = [{jax.result_info = "result['largest']"}, {jax.result_info = "result['scores']"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg8: tensor<?x4xf32>):
    %58 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %59 = "stablehlo.get_dimension_size"(%arg8) <{dimension = 0 : i64}> : (tensor<?x4xf32>) -> tensor<i32>
    %60 = "stablehlo.compare"(%59, %58) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction GE>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.custom_call"(%60, %59) <{api_version = 2 : i32, call_target_name = "shape_assertion", has_side_effect = true}> {error_message = "Input shapes do not match the polymorphic shapes specification. Expected value >= 1 for dimension variable 'batch'. Using the following polymorphic shapes specifications: args[0].shape = (batch, 4). Obtained dimension variables: 'batch' = {0} from specification 'batch' for dimension args[0].shape[0] (= {0}), . Please see https://docs.jax.dev/en/latest/export/shape_poly.html#shape-assertion-errors for more details."} : (tensor<i1>, tensor<i32>) -> ()
    %61:2 = "func.call"(%59, %arg8) <{callee = @_wrapped_jax_export_main}> : (tensor<i32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<?x3xf32>)
    "func.return"(%61#0, %61#1) : (tensor<f32>, tensor<?x3xf32>) -> ()
  }) : () -> ()
  "func.func"() <{arg_attrs = [{jax.global_constant = "batch"}, {}], function_type = (tensor<i32>, tensor<?x4xf32>) -> (tensor<f32>, tensor<?x3xf32>), res_attrs = [{jax.result_info = "result['largest']"}, {jax.result_info = "result['scores']"}], sym_name = "_wrapped_jax_export_main", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<i32>, %arg1: tensor<?x4xf32>):
    %0 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %1 = "stablehlo.constant"() <{value = dense<3> : tensor<1xi32>}> : () -> tensor<1xi32>
    %2 = "stablehlo.constant"() <{value = dense<1> : tensor<1xi32>}> : () -> tensor<1xi32>
    %3 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %4 = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %5 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %6 = "stablehlo.constant"() <{value = dense<0.797884583> : tensor<f32>}> : () -> tensor<f32>
    %7 = "stablehlo.constant"() <{value = dense<8> : tensor<1xi32>}> : () -> tensor<1xi32>
    %8 = "stablehlo.constant"() <{value = dense<4.471500e-02> : tensor<f32>}> : () -> tensor<f32>
    %9 = "stablehlo.constant"() <{value = dense<[[1.300000e-01, -1.300000e-01, 6.400000e-01, 1.000000e-01, -5.400000e-01, 3.600000e-01, 1.300000e+00, 0.949999988], [-0.699999988, -1.270000e+00, -6.200000e-01, 4.000000e-02, -2.330000e+00, -2.200000e-01, -1.250000e+00, -7.300000e-01], [-5.400000e-01, -3.200000e-01, 4.100000e-01, 1.040000e+00, -1.300000e-01, 1.370000e+00, -6.700000e-01, 3.500000e-01], [0.899999976, 9.000000e-02, -7.400000e-01, -9.200000e-01, -4.600000e-01, 2.200000e-01, -1.010000e+00, -2.100000e-01]]> : tensor<4x8xf32>}> : () -> tensor<4x8xf32>
    %10 = "stablehlo.constant"() <{value = dense<[[-1.600000e-01, 5.400000e-01, 2.100000e-01], [3.600000e-01, -6.500000e-01, -1.300000e-01], [7.800000e-01, 1.490000e+00, -1.260000e+00], [1.510000e+00, 1.350000e+00, 7.800000e-01], [2.600000e-01, -3.100000e-01, 1.460000e+00], [1.960000e+00, 1.800000e+00, 1.320000e+00], [3.600000e-01, -1.210000e+00, -0.000000e+00], [6.600000e-01, -1.290000e+00, 4.000000e-01]]> : tensor<8x3xf32>}> : () -> tensor<8x3xf32>
    %11 = "stablehlo.dot_general"(%arg1, %9) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<?x4xf32>, tensor<4x8xf32>) -> tensor<?x8xf32>
    %12 = "stablehlo.multiply"(%11, %11) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %13 = "stablehlo.multiply"(%12, %11) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %14 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %15 = "stablehlo.concatenate"(%14, %7) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %16 = "stablehlo.dynamic_broadcast_in_dim"(%8, %15) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<2xi32>) -> tensor<?x8xf32>
    %17 = "stablehlo.multiply"(%16, %13) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %18 = "stablehlo.add"(%11, %17) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %19 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %20 = "stablehlo.concatenate"(%19, %7) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %21 = "stablehlo.dynamic_broadcast_in_dim"(%6, %20) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<2xi32>) -> tensor<?x8xf32>
    %22 = "stablehlo.multiply"(%21, %18) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %23 = "stablehlo.tanh"(%22) : (tensor<?x8xf32>) -> tensor<?x8xf32>
    %24 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %25 = "stablehlo.concatenate"(%24, %7) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %26 = "stablehlo.dynamic_broadcast_in_dim"(%5, %25) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<2xi32>) -> tensor<?x8xf32>
    %27 = "stablehlo.add"(%26, %23) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %28 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %29 = "stablehlo.concatenate"(%28, %7) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %30 = "stablehlo.dynamic_broadcast_in_dim"(%4, %29) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<2xi32>) -> tensor<?x8xf32>
    %31 = "stablehlo.multiply"(%30, %27) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %32 = "stablehlo.multiply"(%11, %31) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %33 = "stablehlo.dot_general"(%32, %10) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<?x8xf32>, tensor<8x3xf32>) -> tensor<?x3xf32>
    %34 = "stablehlo.reduce"(%33, %3) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
      %57 = "stablehlo.maximum"(%arg6, %arg7) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%57) : (tensor<f32>) -> ()
    }) : (tensor<?x3xf32>, tensor<f32>) -> tensor<?xf32>
    %35 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %36 = "stablehlo.dynamic_broadcast_in_dim"(%3, %35) <{broadcast_dimensions = array<i64>}> : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %37 = "stablehlo.maximum"(%36, %34) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    %38 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %39 = "stablehlo.concatenate"(%38, %2) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %40 = "stablehlo.dynamic_broadcast_in_dim"(%37, %39) <{broadcast_dimensions = array<i64: 0>}> : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %41 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %42 = "stablehlo.concatenate"(%41, %1) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %43 = "stablehlo.dynamic_broadcast_in_dim"(%40, %42) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x3xf32>
    %44 = "stablehlo.subtract"(%33, %43) : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %45 = "stablehlo.exponential"(%44) : (tensor<?x3xf32>) -> tensor<?x3xf32>
    %46 = "stablehlo.reduce"(%45, %0) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
      %56 = "stablehlo.add"(%arg4, %arg5) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%56) : (tensor<f32>) -> ()
    }) : (tensor<?x3xf32>, tensor<f32>) -> tensor<?xf32>
    %47 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %48 = "stablehlo.concatenate"(%47, %2) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %49 = "stablehlo.dynamic_broadcast_in_dim"(%46, %48) <{broadcast_dimensions = array<i64: 0>}> : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
    %50 = "stablehlo.reshape"(%arg0) : (tensor<i32>) -> tensor<1xi32>
    %51 = "stablehlo.concatenate"(%50, %1) <{dimension = 0 : i64}> : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %52 = "stablehlo.dynamic_broadcast_in_dim"(%49, %51) <{broadcast_dimensions = array<i64: 0, 1>}> : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x3xf32>
    %53 = "stablehlo.divide"(%45, %52) : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %54 = "stablehlo.reduce"(%arg1, %3) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %55 = "stablehlo.maximum"(%arg2, %arg3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%55) : (tensor<f32>) -> ()
    }) : (tensor<?x4xf32>, tensor<f32>) -> tensor<f32>
    "func.return"(%54, %53) : (tensor<f32>, tensor<?x3xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = true, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
