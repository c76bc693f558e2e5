"builtin.module"() <{sym_name = "jit_mixed"}> ({
  "func.func"() <{function_type = (tensor<2x4x4x2xf32>, tensor<3xi32>) -> (tensor<2x12xf32>, tensor<2xi32>, tensor<3x12xf32>, tensor<f32>, tensor<2x12xf32>, tensor<2x12xf32>, tensor<2x12xf32>, tensor<2x6xf32>, tensor<4x14xf32>), res_attrs = [{jax.result_info = "result[0]"}, {jax.result_info = "result[1]"}, {jax.result_info = "result[2]"}, {jax.result_info = "result[3]"}, {jax.result_info = "result[4]"}, {jax.result_info = "result[5]"}, {jax.result_info = "result[6]"}, {jax.result_info = "result[7]"}, {jax.result_info = "result[8]"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg22: tensor<2x4x4x2xf32>, %arg23: tensor<3xi32>):
    %54 = "stablehlo.constant"() <{value = dense<2.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %55 = "stablehlo.constant"() <{value = dense<1.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %56 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %57 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %58 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () -> tensor<i32>
    %59 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %60 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %61 = "stablehlo.constant"() <{value = dense<[[[[0.000000e+00, 0.0416666679, 0.0833333358], [1.250000e-01, 0.166666672, 0.208333328]], [[2.500000e-01, 0.291666657, 0.333333343], [3.750000e-01, 0.416666657, 0.458333343]]], [[[5.000000e-01, 0.541666687, 0.583333313], [6.250000e-01, 0.666666686, 0.708333313]], [[7.500000e-01, 0.791666686, 0.833333313], [8.750000e-01, 0.916666686, 0.958333313]]]]> : tensor<2x2x2x3xf32>}> : () -> tensor<2x2x2x3xf32>
    %62 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %63 = "stablehlo.broadcast_in_dim"(%62) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<f32>
    %64 = "stablehlo.reduce_window"(%arg22, %63) <{window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg34: tensor<f32>, %arg35: tensor<f32>):
      %103 = "stablehlo.maximum"(%arg34, %arg35) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%103) : (tensor<f32>) -> ()
    }) : (tensor<2x4x4x2xf32>, tensor<f32>) -> tensor<2x2x2x2xf32>
    %65 = "stablehlo.convolution"(%64, %61) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, padding = dense<[[0, 1], [0, 1]]> : tensor<2x2xi64>}> : (tensor<2x2x2x2xf32>, tensor<2x2x2x3xf32>) -> tensor<2x2x2x3xf32>
    %66 = "stablehlo.reshape"(%65) : (tensor<2x2x2x3xf32>) -> tensor<2x12xf32>
    %67:4 = "stablehlo.while"(%66, %60, %60, %59) ({
    ^bb0(%arg30: tensor<2x12xf32>, %arg31: tensor<i32>, %arg32: tensor<i32>, %arg33: tensor<f32>):
      %102 = "stablehlo.compare"(%arg31, %58) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%102) : (tensor<i1>) -> ()
    }, {
    ^bb0(%arg26: tensor<2x12xf32>, %arg27: tensor<i32>, %arg28: tensor<i32>, %arg29: tensor<f32>):
      %100:2 = "func.call"(%arg26, %arg28, %arg29) <{callee = @closed_call}> : (tensor<2x12xf32>, tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>)
      %101 = "stablehlo.add"(%arg27, %57) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%arg26, %101, %100#0, %100#1) : (tensor<2x12xf32>, tensor<i32>, tensor<i32>, tensor<f32>) -> ()
    }) : (tensor<2x12xf32>, tensor<i32>, tensor<i32>, tensor<f32>) -> (tensor<2x12xf32>, tensor<i32>, tensor<i32>, tensor<f32>)
    %68 = "func.call"(%66) <{callee = @sort}> : (tensor<2x12xf32>) -> tensor<2x12xf32>
    %69 = "func.call"(%66) <{callee = @argmax}> : (tensor<2x12xf32>) -> tensor<2xi32>
    %70 = "stablehlo.broadcast_in_dim"(%60) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<3xi32>
    %71 = "stablehlo.compare"(%arg23, %70) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
    %72 = "stablehlo.broadcast_in_dim"(%56) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<3xi32>
    %73 = "stablehlo.add"(%arg23, %72) : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
    %74 = "stablehlo.select"(%71, %73, %arg23) : (tensor<3xi1>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
    %75 = "stablehlo.broadcast_in_dim"(%74) <{broadcast_dimensions = array<i64: 0>}> : (tensor<3xi32>) -> tensor<3x1xi32>
    %76 = "stablehlo.gather"(%66, %75) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 12>}> : (tensor<2x12xf32>, tensor<3x1xi32>) -> tensor<3x12xf32>
    %77 = "stablehlo.compare"(%67#3, %59) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %78 = "stablehlo.negate"(%67#3) : (tensor<f32>) -> tensor<f32>
    %79 = "func.call"(%77, %67#3, %78) <{callee = @_where}> : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %80 = "stablehlo.compare"(%67#3, %55) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %81 = "stablehlo.convert"(%80) : (tensor<i1>) -> tensor<i32>
    %82 = "stablehlo.case"(%81) ({
      %98 = "stablehlo.broadcast_in_dim"(%55) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x12xf32>
      %99 = "stablehlo.subtract"(%66, %98) : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
      "stablehlo.return"(%99) : (tensor<2x12xf32>) -> ()
    }, {
      %96 = "stablehlo.broadcast_in_dim"(%54) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x12xf32>
      %97 = "stablehlo.multiply"(%66, %96) : (tensor<2x12xf32>, tensor<2x12xf32>) -> tensor<2x12xf32>
      "stablehlo.return"(%97) : (tensor<2x12xf32>) -> ()
    }) : (tensor<i32>) -> tensor<2x12xf32>
    %83 = "stablehlo.broadcast_in_dim"(%60) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<3xi32>
    %84 = "stablehlo.compare"(%arg23, %83) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
    %85 = "stablehlo.broadcast_in_dim"(%56) <{broadcast_dimensions = array<i64>}> : (tensor<i32>) -> tensor<3xi32>
    %86 = "stablehlo.add"(%arg23, %85) : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
    %87 = "stablehlo.select"(%84, %86, %arg23) : (tensor<3xi1>, tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
    %88 = "stablehlo.broadcast_in_dim"(%87) <{broadcast_dimensions = array<i64: 0>}> : (tensor<3xi32>) -> tensor<3x1xi32>
    %89 = "stablehlo.broadcast_in_dim"(%55) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<3x12xf32>
    %90 = "stablehlo.scatter"(%66, %88, %89) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%arg24: tensor<f32>, %arg25: tensor<f32>):
      %95 = "stablehlo.add"(%arg24, %arg25) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%95) : (tensor<f32>) -> ()
    }) : (tensor<2x12xf32>, tensor<3x1xi32>, tensor<3x12xf32>) -> tensor<2x12xf32>
    %91 = "func.call"(%66) <{callee = @cumsum}> : (tensor<2x12xf32>) -> tensor<2x12xf32>
    %92 = "stablehlo.slice"(%66) <{limit_indices = array<i64: 2, 12>, start_indices = array<i64: 0, 1>, strides = array<i64: 1, 2>}> : (tensor<2x12xf32>) -> tensor<2x6xf32>
    %93 = "stablehlo.reverse"(%92) <{dimensions = array<i64: 1>}> : (tensor<2x6xf32>) -> tensor<2x6xf32>
    %94 = "func.call"(%66, %60) <{callee = @_pad}> : (tensor<2x12xf32>, tensor<i32>) -> tensor<4x14xf32>
    "func.return"(%68, %69, %76, %79, %82, %90, %91, %93, %94) : (tensor<2x12xf32>, tensor<2xi32>, tensor<3x12xf32>, tensor<f32>, tensor<2x12xf32>, tensor<2x12xf32>, tensor<2x12xf32>, tensor<2x6xf32>, tensor<4x14xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>, tensor<i32>, tensor<f32>) -> (tensor<i32>, tensor<f32>), sym_name = "closed_call", sym_visibility = "private"}> ({
  ^bb0(%arg17: tensor<2x12xf32>, %arg18: tensor<i32>, %arg19: tensor<f32>):
    %33 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %34 = "stablehlo.constant"() <{value = dense<12> : tensor<i32>}> : () -> tensor<i32>
    %35 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
    %36 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %37 = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %38 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %39 = "stablehlo.add"(%arg18, %38) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %40 = "stablehlo.multiply"(%arg19, %37) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %41 = "stablehlo.convert"(%arg18) : (tensor<i32>) -> tensor<i32>
    %42 = "stablehlo.compare"(%36, %36) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %43 = "stablehlo.add"(%36, %35) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %44 = "stablehlo.select"(%42, %43, %36) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %45 = "stablehlo.compare"(%41, %36) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %46 = "stablehlo.add"(%41, %34) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %47 = "stablehlo.select"(%45, %46, %41) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %48 = "stablehlo.dynamic_slice"(%arg17, %44, %47) <{slice_sizes = array<i64: 2, 1>}> : (tensor<2x12xf32>, tensor<i32>, tensor<i32>) -> tensor<2x1xf32>
    %49 = "stablehlo.reshape"(%48) : (tensor<2x1xf32>) -> tensor<2xf32>
    %50 = "stablehlo.reduce"(%49, %33) <{dimensions = array<i64: 0>}> ({
    ^bb0(%arg20: tensor<f32>, %arg21: tensor<f32>):
      %53 = "stablehlo.add"(%arg20, %arg21) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%53) : (tensor<f32>) -> ()
    }) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
    %51 = "stablehlo.convert"(%40) : (tensor<f32>) -> tensor<f32>
    %52 = "stablehlo.add"(%51, %50) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "func.return"(%39, %52) : (tensor<i32>, tensor<f32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>) -> tensor<2x12xf32>, sym_name = "sort", sym_visibility = "private"}> ({
  ^bb0(%arg14: tensor<2x12xf32>):
    %21 = "stablehlo.constant"() <{value = dense<0x7FC00000> : tensor<f32>}> : () -> tensor<f32>
    %22 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %23 = "stablehlo.sort"(%arg14) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg15: tensor<f32>, %arg16: tensor<f32>):
      %24 = "stablehlo.compare"(%arg15, %22) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %25 = "stablehlo.select"(%24, %22, %arg15) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %26 = "stablehlo.compare"(%arg15, %arg15) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %27 = "stablehlo.select"(%26, %21, %25) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %28 = "stablehlo.compare"(%arg16, %22) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %29 = "stablehlo.select"(%28, %22, %arg16) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %30 = "stablehlo.compare"(%arg16, %arg16) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %31 = "stablehlo.select"(%30, %21, %29) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %32 = "stablehlo.compare"(%27, %31) <{compare_type = #stablehlo<comparison_type TOTALORDER>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      "stablehlo.return"(%32) : (tensor<i1>) -> ()
    }) : (tensor<2x12xf32>) -> tensor<2x12xf32>
    "func.return"(%23) : (tensor<2x12xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>) -> tensor<2xi32>, sym_name = "argmax", sym_visibility = "private"}> ({
  ^bb0(%arg9: tensor<2x12xf32>):
    %8 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %9 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %10 = "stablehlo.iota"() <{iota_dimension = 1 : i64}> : () -> tensor<2x12xi32>
    %11:2 = "stablehlo.reduce"(%arg9, %10, %9, %8) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg10: tensor<f32>, %arg11: tensor<i32>, %arg12: tensor<f32>, %arg13: tensor<i32>):
      %12 = "stablehlo.compare"(%arg10, %arg12) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction GT>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %13 = "stablehlo.compare"(%arg10, %arg10) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction NE>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %14 = "stablehlo.or"(%12, %13) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %15 = "stablehlo.compare"(%arg10, %arg12) <{compare_type = #stablehlo<comparison_type FLOAT>, comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %16 = "stablehlo.compare"(%arg11, %arg13) <{compare_type = #stablehlo<comparison_type SIGNED>, comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %17 = "stablehlo.and"(%15, %16) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %18 = "stablehlo.or"(%14, %17) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %19 = "stablehlo.select"(%14, %arg10, %arg12) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
      %20 = "stablehlo.select"(%18, %arg11, %arg13) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%19, %20) : (tensor<f32>, tensor<i32>) -> ()
    }) : (tensor<2x12xf32>, tensor<2x12xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
    "func.return"(%11#1) : (tensor<2xi32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>, sym_name = "_where", sym_visibility = "private"}> ({
  ^bb0(%arg6: tensor<i1>, %arg7: tensor<f32>, %arg8: tensor<f32>):
    %7 = "stablehlo.select"(%arg6, %arg7, %arg8) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
    "func.return"(%7) : (tensor<f32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>) -> tensor<2x12xf32>, sym_name = "cumsum", sym_visibility = "private"}> ({
  ^bb0(%arg5: tensor<2x12xf32>):
    %6 = "func.call"(%arg5) <{callee = @cumsum_0}> : (tensor<2x12xf32>) -> tensor<2x12xf32>
    "func.return"(%6) : (tensor<2x12xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>) -> tensor<2x12xf32>, sym_name = "cumsum_0", sym_visibility = "private"}> ({
  ^bb0(%arg2: tensor<2x12xf32>):
    %2 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %3 = "stablehlo.broadcast_in_dim"(%2) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<f32>
    %4 = "stablehlo.reduce_window"(%arg2, %3) <{padding = dense<[[0, 0], [11, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 12>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %5 = "stablehlo.add"(%arg3, %arg4) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%5) : (tensor<f32>) -> ()
    }) : (tensor<2x12xf32>, tensor<f32>) -> tensor<2x12xf32>
    "func.return"(%4) : (tensor<2x12xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x12xf32>, tensor<i32>) -> tensor<4x14xf32>, sym_name = "_pad", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<2x12xf32>, %arg1: tensor<i32>):
    %0 = "stablehlo.convert"(%arg1) : (tensor<i32>) -> tensor<f32>
    %1 = "stablehlo.pad"(%arg0, %0) <{edge_padding_high = array<i64: 1, 1>, edge_padding_low = array<i64: 1, 1>, interior_padding = array<i64: 0, 0>}> : (tensor<2x12xf32>, tensor<f32>) -> tensor<4x14xf32>
    "func.return"(%1) : (tensor<4x14xf32>) -> ()
  }) : () -> ()
}) {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} : () -> ()
