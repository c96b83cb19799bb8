"use strict";

// The spectrum of a signal that is a sum of tones: radix-2 Fourier transform, recursive, a new list at each step.

const { list, number, objects, whole } = require("../common/arguments");

const MAX_LENGTH = 1 << 16;
// Two tones of equal height differ by more than what rounding makes of it.
const AUDIBLE = 1e-6;

function tonesOf(values, length) {
  return objects(values, "tones", { most: 32, otherwise: [{ frequency: 1, amplitude: 1 }] }).map((tone) => ({
    frequency: whole(tone, "frequency", { least: 1, most: length / 2 - 1 }),
    amplitude: number(tone, "amplitude", { least: 0, most: 1e6, otherwise: 1 }),
  }));
}

/** The sum of the tones, each a cosine with so many periods in `length` samples. */
function signal(tones, length) {
  return Array.from({ length }, (_, index) => {
    let real = 0;
    for (const { frequency, amplitude } of tones) {
      real += amplitude * Math.cos((2 * Math.PI * ((frequency * index) % length)) / length);
    }
    return { real, imaginary: 0 };
  });
}

/** The transform of as many samples as a power of two; with `sign` 1 the inverse one, times their number. */
function transform(samples, sign = -1) {
  const { length } = samples;
  if (length === 1) return samples;
  const even = transform(
    samples.filter((_, index) => index % 2 === 0),
    sign,
  );
  const odd = transform(
    samples.filter((_, index) => index % 2 === 1),
    sign,
  );
  const result = new Array(length);
  for (let index = 0; index < length / 2; index++) {
    const angle = (sign * 2 * Math.PI * index) / length;
    const cosine = Math.cos(angle);
    const sine = Math.sin(angle);
    const { real, imaginary } = odd[index];
    const turned = { real: real * cosine - imaginary * sine, imaginary: real * sine + imaginary * cosine };
    const base = even[index];
    result[index] = { real: base.real + turned.real, imaginary: base.imaginary + turned.imaginary };
    result[index + length / 2] = { real: base.real - turned.real, imaginary: base.imaginary - turned.imaginary };
  }
  return result;
}

const energy = (points) => points.reduce((sum, { real, imaginary }) => sum + real * real + imaginary * imaginary, 0);

function peaks(spectrum) {
  const { length } = spectrum;
  return spectrum
    .slice(1, length / 2)
    .map(({ real, imaginary }, index) => ({
      frequency: index + 1,
      amplitude: (2 * Math.hypot(real, imaginary)) / length,
    }))
    .filter(({ amplitude }) => amplitude > AUDIBLE);
}

/** How far the inverse transform is from the samples, at most. */
function distance(samples, spectrum) {
  const { length } = samples;
  return transform(spectrum, 1).reduce(
    (most, { real, imaginary }, index) =>
      Math.max(most, Math.hypot(real / length - samples[index].real, imaginary / length)),
    0,
  );
}

exports.main = (values) => {
  const length = whole(values, "length", { least: 4, most: MAX_LENGTH, otherwise: 8192 });
  if ((length & (length - 1)) !== 0) throw new RangeError("length has to be a power of two");
  const tones = tonesOf(values, length);
  const bins = list(values, "bins", { least: 0, most: 1024, otherwise: [] });
  if (bins.some((bin) => !Number.isInteger(bin) || bin < 0 || bin >= length)) {
    throw new RangeError("bins have to be whole numbers from 0 to length - 1");
  }

  const samples = signal(tones, length);
  const spectrum = transform(samples);
  const found = peaks(spectrum);
  return {
    peaks: found,
    summary: found.map(({ frequency, amplitude }) => `${frequency}: ${amplitude.toFixed(3)}`).join(", "),
    bins: bins.map((bin) => [spectrum[bin].real, spectrum[bin].imaginary]),
    signal_energy: energy(samples),
    spectrum_energy: energy(spectrum) / length,
    inverse_distance: distance(samples, spectrum),
  };
};
