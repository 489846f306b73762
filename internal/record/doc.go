// Package record reads recorded passes and labels from files of NumPy, .npy and .npz, and writes .npy
// files.
//
// The reader takes versions 1.0, 2.0 and 3.0 of the .npy format: floats of two, four and eight
// bytes, integers, booleans and text, little- or big-endian, in C or Fortran order. It refuses
// pickled objects, structured and complex types with an error that names the file and the byte.
//
// Memory follows the bytes in the file, not the sizes that a header claims. A file of a hundred
// bytes that claims 10^12 values fails before anything is allocated for them.
//
// The layout of an array is never guessed. [ReadPasses] reads it as told, [Passes.Note] says how it
// was read, and [Passes.CheckRows] says which transpose would help where the class axis does not
// sum to 1.
package record
