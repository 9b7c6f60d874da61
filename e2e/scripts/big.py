"""The example's training on the model with ballast."""

import big_model
import train

if __name__ == "__main__":
    train.build_model = big_model.build
    train.main()
