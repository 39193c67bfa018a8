CONTRIBUTES = {
    (1.0, +1.0): True,
    (1.3, +1.0): False,
    (0.7, +1.0): True,
    (1.0, -1.0): True,
    (1.3, -1.0): True,
    (0.7, -1.0): False,
}
