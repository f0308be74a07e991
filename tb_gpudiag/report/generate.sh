#!/bin/sh
# Writes report_pb2.py and report_pb2.pyi from report.proto. Run it after every change of report.proto.
# protoc 25 (grpcio-tools 1.62, Python up to 3.12) on purpose: code that newer ones write refuses every other
# major version of protobuf, while this one's loads from protobuf 4.25 to 7.
set -eu
cd "$(dirname "$0")/../.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" install --quiet "grpcio-tools==1.62.3" "setuptools<81"
"$tools/bin/python" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. tb_gpudiag/report/report.proto
# mypy strict wants to know what a mapping holds.
sed -i.bak 's/_Mapping\]/_Mapping[str, object]]/g' tb_gpudiag/report/report_pb2.pyi
rm tb_gpudiag/report/report_pb2.pyi.bak
