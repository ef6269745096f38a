use super::*;

/// What Go 1.26 answers: length, number of keys, pattern, hash of the resulting order.
#[rustfmt::skip]
const FROM_GO: &[(usize, usize, usize, u64)] = &[
    (5, 1, 0, 0x3378_e3d0_c52e_dfaf), (5, 1, 1, 0x3378_e3d0_c52e_dfaf), (5, 1, 2, 0x0f66_e1bf_4f6b_8607),
    (5, 1, 3, 0x3378_e3d0_c52e_dfaf), (5, 2, 0, 0xfa1b_7603_a769_11e3), (5, 2, 1, 0x3378_e3d0_c52e_dfaf),
    (5, 2, 2, 0x7a06_2a25_0040_0af3), (5, 2, 3, 0x821d_a8c8_651d_9771), (5, 5, 0, 0xc0ba_af36_89a0_7705),
    (5, 5, 1, 0x3378_e3d0_c52e_dfaf), (5, 5, 2, 0xe367_1b16_371f_ea8f), (5, 5, 3, 0x0d68_30c0_2767_2909),
    (5, 1000, 0, 0x3b79_8125_b5f5_0bf1), (5, 1000, 1, 0x3378_e3d0_c52e_dfaf), (5, 1000, 2, 0xe367_1b16_371f_ea8f),
    (5, 1000, 3, 0x3378_e3d0_c52e_dfaf), (12, 1, 0, 0x2d7d_4819_416d_7fb9), (12, 1, 1, 0x2d7d_4819_416d_7fb9),
    (12, 1, 2, 0x222d_494f_170e_2741), (12, 1, 3, 0x2d7d_4819_416d_7fb9), (12, 2, 0, 0x8206_7793_975e_303b),
    (12, 2, 1, 0x2d7d_4819_416d_7fb9), (12, 2, 2, 0x36ec_4f6c_d2f9_fe7b), (12, 2, 3, 0x688e_4c19_6588_b623),
    (12, 5, 0, 0xdebf_37af_3393_1e75), (12, 5, 1, 0x2d7d_4819_416d_7fb9), (12, 5, 2, 0x4eb1_5dea_7d77_fd09),
    (12, 5, 3, 0xde35_843c_23e6_f241), (12, 1000, 0, 0x7096_bfa4_e664_da07), (12, 1000, 1, 0x2d7d_4819_416d_7fb9),
    (12, 1000, 2, 0xa033_525a_4dc8_63f9), (12, 1000, 3, 0x2d7d_4819_416d_7fb9), (13, 1, 0, 0xb961_37ea_2d10_008f),
    (13, 1, 1, 0xb961_37ea_2d10_008f), (13, 1, 2, 0x033a_9350_31d2_8891), (13, 1, 3, 0xb961_37ea_2d10_008f),
    (13, 2, 0, 0x835e_d8b7_8703_6b4d), (13, 2, 1, 0xb961_37ea_2d10_008f), (13, 2, 2, 0x61c0_87b8_9cb8_6dd9),
    (13, 2, 3, 0x1f0d_2022_4598_4cb5), (13, 5, 0, 0x8b40_eb00_857a_e0f7), (13, 5, 1, 0xb961_37ea_2d10_008f),
    (13, 5, 2, 0x3d5f_bf78_177d_204f), (13, 5, 3, 0x123a_b30b_5962_0f53), (13, 1000, 0, 0xf0d1_61ff_14a1_2cbb),
    (13, 1000, 1, 0xb961_37ea_2d10_008f), (13, 1000, 2, 0x1d2f_a564_5d0d_ec3f), (13, 1000, 3, 0xb961_37ea_2d10_008f),
    (30, 1, 0, 0x0e70_7b5c_91a8_4776), (30, 1, 1, 0x0e70_7b5c_91a8_4776), (30, 1, 2, 0xd87d_af58_176a_a392),
    (30, 1, 3, 0x0e70_7b5c_91a8_4776), (30, 2, 0, 0xf177_c742_30d1_7516), (30, 2, 1, 0x0e70_7b5c_91a8_4776),
    (30, 2, 2, 0xb4ec_a7ea_69e0_8020), (30, 2, 3, 0x2b34_45e6_5d4c_09ec), (30, 5, 0, 0xc6ab_1d88_715d_4954),
    (30, 5, 1, 0x0e70_7b5c_91a8_4776), (30, 5, 2, 0x4f2e_70db_b428_7dfe), (30, 5, 3, 0x47fb_0ce3_5a20_38b8),
    (30, 1000, 0, 0x600b_6295_7b5a_86e4), (30, 1000, 1, 0x0e70_7b5c_91a8_4776), (30, 1000, 2, 0xdcc2_386d_8f9f_d95c),
    (30, 1000, 3, 0x0e70_7b5c_91a8_4776), (49, 1, 0, 0x360a_5c9d_3b1b_f95f), (49, 1, 1, 0x360a_5c9d_3b1b_f95f),
    (49, 1, 2, 0xe05c_3a60_773c_7311), (49, 1, 3, 0x360a_5c9d_3b1b_f95f), (49, 2, 0, 0x38d6_e31c_8fd0_b61d),
    (49, 2, 1, 0x360a_5c9d_3b1b_f95f), (49, 2, 2, 0x498c_cae5_5e16_6239), (49, 2, 3, 0x9de9_a02b_7091_478f),
    (49, 5, 0, 0x8174_c982_a140_987d), (49, 5, 1, 0x360a_5c9d_3b1b_f95f), (49, 5, 2, 0x9ca4_7180_c7b8_df5f),
    (49, 5, 3, 0xc7c5_70b5_0d7b_c5fd), (49, 1000, 0, 0x5059_88e1_4f9e_0681), (49, 1000, 1, 0x360a_5c9d_3b1b_f95f),
    (49, 1000, 2, 0x33bb_9373_b550_3e3f), (49, 1000, 3, 0x360a_5c9d_3b1b_f95f), (50, 1, 0, 0xef94_cd2b_7088_d5ea),
    (50, 1, 1, 0xef94_cd2b_7088_d5ea), (50, 1, 2, 0x054a_f2c5_ed4c_ebe4), (50, 1, 3, 0xef94_cd2b_7088_d5ea),
    (50, 2, 0, 0xecbf_e053_547e_8e4c), (50, 2, 1, 0xef94_cd2b_7088_d5ea), (50, 2, 2, 0x49e0_4a13_4828_46fc),
    (50, 2, 3, 0x1cb8_8f89_d89f_2a66), (50, 5, 0, 0x76cf_6059_1a26_520c), (50, 5, 1, 0xef94_cd2b_7088_d5ea),
    (50, 5, 2, 0x9b9d_f268_d728_65ec), (50, 5, 3, 0x90dd_d56c_848d_0632), (50, 1000, 0, 0xd385_71a2_502b_ab86),
    (50, 1000, 1, 0xef94_cd2b_7088_d5ea), (50, 1000, 2, 0x0342_0ad0_5be5_3744), (50, 1000, 3, 0xef94_cd2b_7088_d5ea),
    (51, 1, 0, 0xa2ae_78d0_3883_5e08), (51, 1, 1, 0xa2ae_78d0_3883_5e08), (51, 1, 2, 0x4bf0_5652_3a45_326e),
    (51, 1, 3, 0xa2ae_78d0_3883_5e08), (51, 2, 0, 0x2939_5757_143f_de32), (51, 2, 1, 0xa2ae_78d0_3883_5e08),
    (51, 2, 2, 0x32d5_2031_e607_effc), (51, 2, 3, 0xa69a_bb4e_ae47_818e), (51, 5, 0, 0x43fd_fff0_c1f5_f1fa),
    (51, 5, 1, 0xa2ae_78d0_3883_5e08), (51, 5, 2, 0x71c9_1079_bf66_7aac), (51, 5, 3, 0x48ef_3229_5728_9126),
    (51, 1000, 0, 0x7ad6_02f5_8d65_8204), (51, 1000, 1, 0xa2ae_78d0_3883_5e08), (51, 1000, 2, 0xd968_d6e9_d87f_7db4),
    (51, 1000, 3, 0xa2ae_78d0_3883_5e08), (75, 1, 0, 0x1410_a110_b749_ec68), (75, 1, 1, 0x1410_a110_b749_ec68),
    (75, 1, 2, 0xe259_9f8e_38fe_1d96), (75, 1, 3, 0x1410_a110_b749_ec68), (75, 2, 0, 0x0929_ec32_1ecd_0fa0),
    (75, 2, 1, 0x1410_a110_b749_ec68), (75, 2, 2, 0xe213_fa77_ddec_2c8c), (75, 2, 3, 0xfb3e_7a9f_9baf_21a2),
    (75, 5, 0, 0xd490_4c22_dc75_97ce), (75, 5, 1, 0x1410_a110_b749_ec68), (75, 5, 2, 0x7d15_0d35_d761_9b2e),
    (75, 5, 3, 0xdd5c_1ec5_057c_4fe4), (75, 1000, 0, 0x904a_c87b_feca_e7c4), (75, 1000, 1, 0x1410_a110_b749_ec68),
    (75, 1000, 2, 0x5086_025e_9989_15ec), (75, 1000, 3, 0x1410_a110_b749_ec68), (100, 1, 0, 0xfb5c_8cec_60d8_3ab1),
    (100, 1, 1, 0xfb5c_8cec_60d8_3ab1), (100, 1, 2, 0x73fd_8cfe_ee7c_7b91), (100, 1, 3, 0xfb5c_8cec_60d8_3ab1),
    (100, 2, 0, 0xf797_fd5b_029d_0511), (100, 2, 1, 0xfb5c_8cec_60d8_3ab1), (100, 2, 2, 0xab3a_2971_3c56_bfa3),
    (100, 2, 3, 0xb6cf_8c6f_e00c_581b), (100, 5, 0, 0x8d39_84bc_ab8a_f0b7), (100, 5, 1, 0xfb5c_8cec_60d8_3ab1),
    (100, 5, 2, 0x9fef_6507_f05f_9a83), (100, 5, 3, 0x4027_1444_fafa_2047), (100, 1000, 0, 0x213f_3921_2e3d_08e1),
    (100, 1000, 1, 0xfb5c_8cec_60d8_3ab1), (100, 1000, 2, 0x6449_3148_4736_d1d9), (100, 1000, 3, 0xfb5c_8cec_60d8_3ab1),
    (257, 1, 0, 0x5ad3_84d3_56b6_b3df), (257, 1, 1, 0x5ad3_84d3_56b6_b3df), (257, 1, 2, 0x9bec_3150_fd0c_1adf),
    (257, 1, 3, 0x5ad3_84d3_56b6_b3df), (257, 2, 0, 0x80a3_5d45_c85b_08b5), (257, 2, 1, 0x5ad3_84d3_56b6_b3df),
    (257, 2, 2, 0x94dd_c1c0_d2a9_dc17), (257, 2, 3, 0xa1d0_60ba_f204_de83), (257, 5, 0, 0x0012_0c0b_a0cb_b515),
    (257, 5, 1, 0x5ad3_84d3_56b6_b3df), (257, 5, 2, 0xaf64_e972_a088_8d99), (257, 5, 3, 0xa691_87e7_8af9_e665),
    (257, 1000, 0, 0xc56a_d1a9_dd29_0497), (257, 1000, 1, 0x5ad3_84d3_56b6_b3df), (257, 1000, 2, 0x4a30_20dd_0507_51df),
    (257, 1000, 3, 0x175d_2fa6_695f_17dd), (1000, 1, 0, 0x988c_c5af_d8cb_65dd), (1000, 1, 1, 0x988c_c5af_d8cb_65dd),
    (1000, 1, 2, 0x12b9_ded7_3865_f795), (1000, 1, 3, 0x988c_c5af_d8cb_65dd), (1000, 2, 0, 0x4161_7f22_3897_55f9),
    (1000, 2, 1, 0x988c_c5af_d8cb_65dd), (1000, 2, 2, 0xbf29_aeaf_721c_5cf7), (1000, 2, 3, 0x13ac_747d_c151_a7f9),
    (1000, 5, 0, 0x7ff6_5313_1603_c369), (1000, 5, 1, 0x988c_c5af_d8cb_65dd), (1000, 5, 2, 0xaec3_5ea0_ce7f_dc3d),
    (1000, 5, 3, 0x41e5_54bc_86d2_f3b7), (1000, 1000, 0, 0x6472_8f46_029d_6b25), (1000, 1000, 1, 0x988c_c5af_d8cb_65dd),
    (1000, 1000, 2, 0xa849_07c5_9e63_feb5), (1000, 1000, 3, 0x8f22_aee5_91d8_48bd),
];

fn hash(ids: impl IntoIterator<Item = usize>) -> u64 {
    ids.into_iter().fold(14_695_981_039_346_656_037, |hash, id| {
        (hash ^ id as u64).wrapping_mul(1_099_511_628_211)
    })
}

#[test]
fn ties_fall_as_they_fall_in_go() {
    let mut seed = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for &(length, keys, pattern, expected) in FROM_GO {
        let mut data: Vec<(usize, usize)> = (0..length)
            .map(|at| match pattern {
                0 => (next(keys), at),
                1 => (at * keys / length, at),
                2 => ((length - at) * keys / length, at),
                _ => ((at * 7) % keys, at),
            })
            .collect();
        sort_slice(&mut data, |a, b| a.0 < b.0);
        assert!(
            data.is_sorted_by_key(|item| item.0),
            "length {length}, {keys} keys, pattern {pattern}"
        );
        let found = hash(data.iter().map(|item| item.1));
        assert_eq!(found, expected, "length {length}, {keys} keys, pattern {pattern}");
    }
}

/// McIlroy's adversary decides the keys while it is asked, so that every pivot is bad and the heap sort takes over.
#[test]
fn an_adversary_meets_the_same_heap_sort_as_in_go() {
    const N: usize = 1000;
    let mut ids: Vec<usize> = (0..N).collect();
    let mut value = vec![N; N];
    let (mut solid, mut candidate) = (0, 0);
    sort_slice(&mut ids, |&x, &y| {
        if value[x] == N && value[y] == N {
            value[if x == candidate { x } else { y }] = solid;
            solid += 1;
        }
        if value[x] == N {
            candidate = x;
        } else if value[y] == N {
            candidate = y;
        }
        value[x] < value[y]
    });
    assert_eq!(hash(ids), 0x43da_cbe0_71a6_5f3f);
}
