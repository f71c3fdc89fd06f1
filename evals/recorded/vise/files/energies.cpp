extern "C" void energies(const float* wave, int length, int width, float* out) {
    for (int i = 0; i + width <= length; i += width) {
        float sum = 0;
        for (int j = 0; j < width; ++j) sum += wave[i + j] * wave[i + j];
        out[i / width] = sum / width;
    }
}
