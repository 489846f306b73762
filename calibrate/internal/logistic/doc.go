// Package logistic fits penalised logistic regressions.
package logistic
